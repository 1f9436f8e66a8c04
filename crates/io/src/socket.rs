//! TCP sockets: listening, accepting, reading, writing.
