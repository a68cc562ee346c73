#![no_main]
#[path = "../entries/enrolment.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::run(data));
