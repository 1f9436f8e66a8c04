//! Messages between clients and OSDs (spec chapter 04).
