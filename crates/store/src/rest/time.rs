//! The two time formats of store answers, parsed without a calendar library: every entry of a listing has one.

use std::time::{SystemTime, UNIX_EPOCH};

/// The current time, milliseconds since the Unix epoch.
pub(crate) fn unix_now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}

/// Days since 1970-01-01 of a date in the Gregorian calendar (Hinnant, "chrono-compatible low-level date algorithms").
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Formats a time as `20240506T070809Z`, for SigV4.
pub(crate) fn amz_date(unix_s: i64) -> String {
    let (days, seconds) = (unix_s.div_euclid(86_400), unix_s.rem_euclid(86_400));
    let (year, month, day) = civil_from_days(days);
    format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Formats a time as `2024-05-06T07:08:09Z`.
pub(crate) fn iso_date(unix_s: i64) -> String {
    let (days, seconds) = (unix_s.div_euclid(86_400), unix_s.rem_euclid(86_400));
    let (year, month, day) = civil_from_days(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// The inverse of [`days_from_civil`], from the same source.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day_of_year - (153 * shifted_month + 2) / 5 + 1)
}

fn number(text: &str, range: std::ops::Range<usize>) -> Option<i64> {
    let digits = text.get(range)?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

fn unix_ms(year: i64, month: i64, day: i64, seconds_of_day: i64, ms: i64) -> Option<i64> {
    ((1..=12).contains(&month) && (1..=31).contains(&day))
        .then(|| (days_from_civil(year, month, day) * 86_400 + seconds_of_day) * 1000 + ms)
}

/// Parses `2024-05-06T07:08:09.123Z`, with or without a fraction, always UTC.
pub(crate) fn parse_rfc3339(text: &str) -> Option<i64> {
    let seconds = number(text, 11..13)? * 3600 + number(text, 14..16)? * 60 + number(text, 17..19)?;
    let fraction = text.get(19..)?.strip_prefix('.').unwrap_or_default();
    let digits: String = fraction.chars().take_while(char::is_ascii_digit).chain("000".chars()).take(3).collect();
    unix_ms(number(text, 0..4)?, number(text, 5..7)?, number(text, 8..10)?, seconds, digits.parse().ok()?)
}

/// Parses `Mon, 06 May 2024 07:08:09 GMT` (RFC 9110 §5.6.7).
pub(crate) fn parse_http_date(text: &str) -> Option<i64> {
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let month = MONTHS.find(text.get(8..11)?)? as i64 / 3 + 1;
    let seconds = number(text, 17..19)? * 3600 + number(text, 20..22)? * 60 + number(text, 23..25)?;
    unix_ms(number(text, 12..16)?, month, number(text, 5..7)?, seconds, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_are_formatted_for_sigv4() {
        assert_eq!(amz_date(1_714_979_289), "20240506T070809Z");
    }

    #[test]
    fn both_formats_agree() {
        assert_eq!(parse_rfc3339("2024-05-06T07:08:09.120Z"), Some(1_714_979_289_120));
        assert_eq!(parse_rfc3339("2024-05-06T07:08:09Z"), Some(1_714_979_289_000));
        assert_eq!(parse_http_date("Mon, 06 May 2024 07:08:09 GMT"), Some(1_714_979_289_000));
        assert_eq!(parse_http_date("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(parse_rfc3339("2000-02-29T23:59:59.999999Z"), Some(951_868_799_999));
    }

    proptest! {
        #[test]
        fn days_round_trip(days in -100_000i64..100_000) {
            let (year, month, day) = civil_from_days(days);
            prop_assert_eq!(days_from_civil(year, month, day), days);
        }

        #[test]
        fn garbage_never_panics(text in ".*") {
            let _ = (parse_rfc3339(&text), parse_http_date(&text));
        }
    }
}
