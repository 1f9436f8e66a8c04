//! Output on its way to a socket.

use io::socket::Stream;
use msgr::Output;
use std::io::{ErrorKind, IoSlice};

/// Pieces of output given to one write call.
const WRITE_SLICES: usize = 64;

/// One write call; 0 when there is nothing to write.
pub(crate) fn write_some(stream: &Stream, out: &mut Output) -> std::io::Result<usize> {
    let mut slices = [IoSlice::new(&[]); WRITE_SLICES];
    let n = out.slices(&mut slices);
    if n == 0 {
        return Ok(0);
    }
    let written = stream.try_write(&slices[..n])?;
    if written == 0 {
        return Err(ErrorKind::WriteZero.into());
    }
    out.advance(written);
    Ok(written)
}
