//! Messages between clients and monitors or the manager (spec chapter 02).
