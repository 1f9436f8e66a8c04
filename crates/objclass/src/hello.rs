//! Class `hello`: the methods of librados' tests (docs/protocol/ceph/05-rbd.md, section 8). Some misbehave on purpose.

use crate::context::Result;
use crate::filter::{Filter, Pass};
use crate::input::Input;
use crate::method::Method;
use crate::object::{Object, done};
use bytes::Bytes;
use types::{AddrKind, Errno};

pub const METHODS: &[Method] = &[
    Method::r("say_hello", say_hello),
    Method::w("record_hello", record_hello),
    Method::r("replay", replay),
    Method::rw("turn_it_to_11", turn_it_to_11),
    Method::w("writes_dont_return_data", writes_dont_return_data),
    Method::w("write_return_data", write_return_data),
    Method::w("write_too_much_return_data", write_too_much_return_data),
    Method::w("bad_reader", bad_reader),
    Method::r("bad_writer", bad_writer),
];

/// Lists the objects that have an attribute of a value.
pub const FILTERS: &[Filter] = &[Filter {
    name: "hello",
    parse: Pass::by_xattr,
}];

/// The longest name that is greeted.
const NAME_MAX: usize = 100;

/// What the returning methods return.
const ANSWER: u16 = 42;

fn greeting(input: &mut Input) -> Result<Bytes> {
    let name = input.rest();
    if name.len() > NAME_MAX {
        return Err(Errno::EINVAL);
    }
    let name: &[u8] = if name.is_empty() { b"world" } else { &name };
    Ok([b"Hello, ", name, b"!"].concat().into())
}

fn say_hello(_: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    greeting(input)
}

/// `client.4242 127.0.0.1:0/77`: the address without its type.
fn caller_text(object: &Object<'_>) -> Bytes {
    let mut caller = object.caller();
    caller.addr.kind = AddrKind::Any;
    format!("{} {}", caller.name, caller.addr).into()
}

fn record_hello(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let text = greeting(input)?;
    if object.exists()? {
        return Err(Errno::EEXIST);
    }
    object.write_full(text)?;
    let who = caller_text(object);
    object.set_xattr_raw(b"said_by", who)?;
    done()
}

fn replay(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    object.read_all()
}

fn turn_it_to_11(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    if !input.rest().is_empty() {
        return Err(Errno::EINVAL);
    }
    let text = match object.exists()? {
        true => object.read_all()?,
        false => Bytes::new(),
    };
    object.write_full(text.to_ascii_uppercase().into())?;
    let who = caller_text(object);
    object.set_xattr_raw(b"amplified_by", who)?;
    done()
}

fn writes_dont_return_data(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    if !input.rest().is_empty() {
        object.set_failure_out(Bytes::from_static(b"it fails, and this goes with it"));
        return Err(Errno::EINVAL);
    }
    object.set_xattr_raw(b"foo", Bytes::from_static(b"bar"))?;
    object.set_rval(ANSWER);
    Ok(Bytes::from_static(b"nobody sees this"))
}

fn write_return_data(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    if !input.rest().is_empty() {
        object.set_failure_out(Bytes::from_static(b"too much input data!"));
        return Err(Errno::EINVAL);
    }
    object.set_xattr_raw(b"foo", Bytes::from_static(b"bar"))?;
    object.set_rval(ANSWER);
    Ok(Bytes::from_static(b"you might see this"))
}

fn write_too_much_return_data(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    object.set_xattr_raw(b"foo", Bytes::from_static(b"bar"))?;
    object.set_rval(ANSWER);
    Ok(Bytes::from_static(&[b'.'; 100]))
}

fn bad_reader(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    object.read(0, 100)
}

fn bad_writer(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    object.write_full(Bytes::from_static(b"not allowed"))?;
    done()
}
