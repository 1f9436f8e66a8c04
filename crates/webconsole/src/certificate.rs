//! A certificate that is made here, where nobody gave one.

use io::Clock;
use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};
use std::net::IpAddr;

/// How long one that was made here is good.
const GOOD_YEARS: i32 = 10;
const YEAR: u64 = 31_556_952;

/// Certificate and key, in PEM, for these names and addresses, signed by nobody else.
pub fn self_signed(names: &[String], ips: &[IpAddr], clock: &dyn Clock) -> Result<(String, String), String> {
    let all = names.iter().cloned().chain(ips.iter().map(IpAddr::to_string));
    let mut params = CertificateParams::new(all.collect::<Vec<_>>()).map_err(|e| e.to_string())?;
    let year = 1970 + (clock.wall().as_secs() / YEAR) as i32;
    params.not_before = date_time_ymd(year - 1, 1, 1);
    params.not_after = date_time_ymd(year + GOOD_YEARS, 1, 1);
    params.distinguished_name.push(DnType::CommonName, "skep console");
    let key = KeyPair::generate().map_err(|e| e.to_string())?;
    let certificate = params.self_signed(&key).map_err(|e| e.to_string())?;
    Ok((certificate.pem(), key.serialize_pem()))
}
