"""The lab: measures storage back ends for a VM cloud side by side, and plans one. Start at cli.py or README.md."""

__version__ = "0.1.0"
