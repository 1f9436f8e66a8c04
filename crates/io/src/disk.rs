//! Files and block devices: the door to the disk.
