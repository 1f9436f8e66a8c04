"""What the whole-system tests share: running commands, a cluster, a Skep process."""
