//! The few fields of an X.509 certificate that the server needs itself: its validity and its
//! holder's name. Signatures, chains and all else are checked by rustls.

use entresol_base::Seconds;
use x509_parser::prelude::{ASN1Time, FromDer, GeneralName, X509Certificate};

/// Time during which a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) from: Seconds,
    pub(super) until: Seconds,
}

fn parse(certificate: &[u8]) -> Option<X509Certificate<'_>> {
    X509Certificate::from_der(certificate).ok().map(|(_, parsed)| parsed)
}

/// Reads the time during which a certificate is valid.
pub(super) fn validity(certificate: &[u8]) -> Option<Validity> {
    let certificate = parse(certificate)?;
    let validity = certificate.validity();
    Some(Validity { from: seconds(validity.not_before), until: seconds(validity.not_after) })
}

/// Converts a time. One beyond those that [`Seconds`] has is the first or the last of them.
fn seconds(time: ASN1Time) -> Seconds {
    Seconds(time.timestamp().clamp(0, i64::from(u32::MAX)) as u32)
}

/// Reads the name of a certificate's holder: its common name or, if it has none, the first host's
/// name or e-mail address among its alternative names. Of several common names none counts.
pub(super) fn holder(certificate: &[u8]) -> Option<String> {
    let certificate = parse(certificate)?;
    let mut common = certificate.subject().iter_common_name();
    match (common.next(), common.next()) {
        (None, _) => {
            let names = certificate.subject_alternative_name().ok()??;
            names.value.general_names.iter().find_map(|name| match name {
                GeneralName::DNSName(name) | GeneralName::RFC822Name(name) => {
                    Some((*name).to_owned())
                }
                _ => None,
            })
        }
        (Some(name), None) => name.as_str().ok().map(str::to_owned),
        (Some(_), Some(_)) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use rcgen::{CertificateParams, DnType, KeyPair, SanType, date_time_ymd};

    use super::*;

    fn issue(change: impl FnOnce(&mut CertificateParams)) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        change(&mut params);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn times_are_seconds_since_1970_within_what_seconds_have() {
        let valid = |from: i32, until: i32| {
            let certificate = issue(|params| {
                params.not_before = date_time_ymd(from, 1, 1);
                params.not_after = date_time_ymd(until, 11, 26);
            });
            validity(&certificate).map(|found| (found.from.0, found.until.0))
        };
        assert_eq!(valid(2000, 2026), Some((946_684_800, 1_795_651_200)));
        assert_eq!(valid(1950, 9999), Some((0, u32::MAX)));
    }

    #[test]
    fn a_holder_has_one_common_name_or_else_a_host_or_an_address() {
        let name = |common: &[DnType], names: &[SanType]| {
            holder(&issue(|params| {
                for (number, one) in common.iter().enumerate() {
                    params.distinguished_name.push(one.clone(), format!("ann{number}"));
                }
                params.subject_alt_names = names.to_vec();
            }))
        };
        let host = SanType::DnsName("host.example".try_into().unwrap());
        let mail = SanType::Rfc822Name("ann@example".try_into().unwrap());
        let address = SanType::IpAddress([127, 0, 0, 1].into());
        let twice = [DnType::CommonName, DnType::CustomDnType(vec![2, 5, 4, 3])];
        let found = |name: &str| Some(name.to_owned());
        assert_eq!(name(&twice[..1], from_ref(&host)), found("ann0"));
        assert_eq!(name(&twice, from_ref(&host)), None);
        assert_eq!(name(&[DnType::OrganizationName], &[]), None);
        assert_eq!(
            name(&[], &[address.clone(), host.clone(), mail.clone()]),
            found("host.example")
        );
        assert_eq!(name(&[], &[mail, host]), found("ann@example"));
        assert_eq!(name(&[], &[address]), None);
    }

    #[test]
    fn what_is_cut_off_or_no_certificate_has_neither() {
        let whole = issue(|_| {});
        let cut = (0..whole.len()).map(|end| &whole[..end]);
        for wrong in cut.chain([&[0x30, 0x80][..], &[0x30, 0x84, 255, 255, 255, 255]]) {
            assert_eq!((validity(wrong), holder(wrong)), (None, None), "{wrong:?}");
        }
    }
}
