//! `skep store dump DIR export`: the data of a pool's objects as files.
//!
//! A file's name is `[namespace+]name[=locator key]` with every byte that is not a letter, a digit or one of
//! `. _ -` as %XX, so that different objects have different files and no name leaves the directory. A name that
//! would be longer than a file system takes is cut, and ends in `~` and a number; what it stands for is printed.

use super::args::Export;
use super::dump::{Rows, each, name, put_name, to_file};
use super::outcome::{Fail, Outcome, Verdict};
use super::text::{bytes, count};
use ::store::{Error, View};
use ::types::{HObject, ObjectId};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::Write;

/// Most file systems take 255 bytes.
const NAME_MAX: usize = 240;

pub fn run(view: &View, args: &Export, out: &mut impl Write, json: bool) -> Outcome {
    let to = &args.to;
    let usage = view.usage();
    let Some(pool) = usage.get(&args.pool) else {
        return Err(Fail::Usage(format!(
            "pool {} has nothing in this store",
            args.pool
        )));
    };
    io::files::make_dir(to).map_err(|e| Fail::path("make", to, e))?;
    if !io::files::list_dir(to)
        .map_err(|e| Fail::path("list", to, e))?
        .is_empty()
    {
        return Err(Fail::Usage(format!("{} is not empty", to.display())));
    }
    let bar = bar(pool.objects);
    let (mut files, mut size, mut damaged, mut cut) = (0, 0, 0, 0);
    let mut rows = Rows::begin(out, json)?;
    each(view, Some(args.pool), |o| {
        bar.inc(1);
        if !o.object.is_head() || is_deleted(view, o)? {
            return Ok(true);
        }
        let (file, was_cut) = file_name(&o.object, cut);
        cut += u64::from(was_cut);
        let path = to.join(&file);
        let verdict = match to_file(view, o, &path, args.skip_damaged) {
            Err(Fail::Store(e @ (Error::Corrupt { .. } | Error::Io { .. }))) => {
                std::fs::remove_file(&path).map_err(|e| Fail::path("remove", &path, e))?;
                damaged += 1;
                bar.suspend(|| eprintln!("skep: left out: {e}"));
                return Ok(true);
            }
            other => other?,
        };
        files += 1;
        damaged += u64::from(verdict == Verdict::Damage);
        size += view.stat(o)?.size;
        if json || was_cut {
            rows.put(
                || format!("{file} is {}", name(&o.object)),
                |map| {
                    map.insert("file".into(), file.clone().into());
                    put_name(map, o);
                    map.insert("damaged".into(), (verdict == Verdict::Damage).into());
                },
            )?;
        }
        Ok(true)
    })?;
    bar.finish_and_clear();
    rows.end()?;
    if !json {
        let (objects, size) = (count(files, "object"), bytes(size));
        writeln!(out, "{objects} with {size} written to {}", to.display()).map_err(Fail::output)?;
    }
    if damaged == 0 {
        return Ok(Verdict::Good);
    }
    let what = match args.skip_damaged {
        true => "written with zeros in place of what is damaged",
        false => "left out (--skip-damaged writes them with zeros in place of what is damaged)",
    };
    eprintln!("skep: {} damaged: {what}", count(damaged, "object"));
    Ok(Verdict::Damage)
}

/// Draws itself on a terminal only.
fn bar(objects: u64) -> ProgressBar {
    let bar = ProgressBar::new(objects);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent:>3}% {pos}/{len} objects (eta {eta})")
    {
        bar.set_style(style);
    }
    bar
}

/// Only kept for its clones.
fn is_deleted(view: &View, o: &ObjectId) -> Result<bool, Fail> {
    let info = view.attr(o, pg::inspect::INFO)?;
    Ok(info.is_some_and(|i| pg::inspect::is_whiteout(&i)))
}

/// And whether it had to be cut; `cut` of this export were before it.
fn file_name(o: &HObject, cut: u64) -> (String, bool) {
    let mut out = String::new();
    if !o.nspace.is_empty() {
        escape(&mut out, &o.nspace);
        out.push('+');
    }
    escape(&mut out, &o.oid);
    if !o.key.is_empty() {
        out.push('=');
        escape(&mut out, &o.key);
    }
    if out.is_empty() {
        // The one object without a name.
        out.push('%');
    }
    if out.len() <= NAME_MAX {
        return (out, false);
    }
    out.truncate(NAME_MAX - 21);
    out += &format!("~{cut}");
    (out, true)
}

fn escape(out: &mut String, raw: &[u8]) {
    for (i, b) in raw.iter().enumerate() {
        let plain = b.is_ascii_alphanumeric() || b"_-".contains(b) || (*b == b'.' && i > 0);
        match plain {
            true => out.push(char::from(*b)),
            false => *out += &format!("%{b:02X}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::types::NOSNAP;
    use bytes::Bytes;

    #[test]
    fn names_of_files_are_safe_and_different() {
        let check = |nspace: &[u8], key: &[u8], oid: &[u8], want: &str| {
            let raw = Bytes::copy_from_slice;
            let o = HObject::new(1, 0, raw(nspace), raw(key), raw(oid), NOSNAP);
            assert_eq!(file_name(&o, 7).0, want);
        };
        check(b"", b"", b"rbd_data.1.0001", "rbd_data.1.0001");
        check(b"", b"", b"..", "%2E.");
        check(b"", b"", b"", "%");
        check(b"", b"", b"../../etc/passwd", "%2E.%2F..%2Fetc%2Fpasswd");
        check(b"a", b"", b"b", "a+b");
        check(b"", b"", b"a+b", "a%2Bb");
        check(b"a", b"k", b"b", "a+b=k");
        check(b"", b"", "ä\0".as_bytes(), "%C3%A4%00");
        let long = "x".repeat(500);
        let cut = format!("{}~7", "x".repeat(219));
        check(b"", b"", long.as_bytes(), &cut);
    }
}
