//! Drives the fuzz entries of the stores' answers with mutated good input, so that every test run covers it on stable.

#[path = "../../../fuzz/entries/answers.rs"]
mod answers;
#[path = "../../../fuzz/entries/headers.rs"]
mod headers;
#[path = "../../../fuzz/seeds.rs"]
mod seeds;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Inputs per seed document.
const MUTATIONS: usize = 5_000;

/// One good answer of each kind. Mutations also splice in pieces of XML.
const SEEDS: [&str; 9] = [
    "<ListBucketResult><IsTruncated>true</IsTruncated><KeyCount>1</KeyCount><EncodingType>url</EncodingType>\
     <NextContinuationToken>t</NextContinuationToken><Contents><Key>a%2Fb+c</Key><Size>12</Size>\
     <LastModified>2024-05-06T07:08:09.123Z</LastModified><ETag>&quot;d41d&quot;</ETag></Contents>\
     <CommonPrefixes><Prefix>d%2F</Prefix></CommonPrefixes></ListBucketResult>",
    "<ListBucketResult><Marker>a</Marker><IsTruncated>true</IsTruncated><NextMarker>b</NextMarker>\
     <Contents><Key>b</Key><Size>1</Size><Generation>7</Generation></Contents></ListBucketResult>",
    "<ListMultipartUploadsResult><IsTruncated>true</IsTruncated><NextKeyMarker>k</NextKeyMarker>\
     <NextUploadIdMarker>u</NextUploadIdMarker><Upload><Key>k</Key><UploadId>u</UploadId>\
     <Initiated>2024-05-06T07:08:09Z</Initiated></Upload></ListMultipartUploadsResult>",
    "<CompleteMultipartUploadResult><ETag>\"x-2\"</ETag><ChecksumCRC64NVME>AAAAAAAAAAA=</ChecksumCRC64NVME>\
     <ChecksumType>FULL_OBJECT</ChecksumType></CompleteMultipartUploadResult>",
    "<DeleteResult><Error><Key>a</Key><Code>AccessDenied</Code><Message>no</Message></Error></DeleteResult>",
    "<Error><Code>SlowDown</Code><Message>&amp;&#65;</Message><Region>eu-west-1</Region></Error>",
    "\u{feff}<EnumerationResults><Blobs><Blob><Name>a &amp; b</Name><Properties>\
     <Last-Modified>Mon, 06 May 2024 07:08:09 GMT</Last-Modified><Etag>0x8D</Etag><Content-Length>7</Content-Length>\
     </Properties></Blob><BlobPrefix><Name>d/</Name></BlobPrefix></Blobs><NextMarker>m</NextMarker></EnumerationResults>",
    "<BlockList><UncommittedBlocks><Block><Name>YS0x</Name><Size>1</Size></Block></UncommittedBlocks></BlockList>",
    "<!DOCTYPE x [<!ENTITY a \"b\"><!ENTITY e SYSTEM \"file:///etc/passwd\">]><ListBucketResult>&a;&e;&#0;&#x110000;<![CDATA[]]>]]>\
     <Contents/><Size>99999999999999999999</Size><Size>-1</Size><IsTruncated>maybe</IsTruncated></ListBucketResult>",
];

/// The head of an answer of each kind.
const HEADS: [&str; 5] = [
    "200\ncontent-length: 12\netag: \"d41d8cd98f00b204e9800998ecf8427e\"\nlast-modified: Mon, 06 May 2024 07:08:09 GMT\n\
     x-amz-version-id: v\nx-amz-checksum-crc64nvme: AAAAAAAAAAA=\nx-amz-checksum-type: FULL_OBJECT\nx-amz-meta-a: b\n\
     content-encoding: gzip,aws-chunked\nx-amz-server-side-encryption: aws:kms",
    "206\ncontent-length: 4\ncontent-range: bytes 5-8/20\nx-amz-checksum-crc32c: 4waSgw==",
    "206\ncontent-length: 4\ncontent-range: bytes 5-18446744073709551615/18446744073709551615",
    "200\nx-goog-hash: crc32c=4waSgw==,md5=1B2M2Y8AsgTpgAmY7PhCfg==\nx-goog-generation: 7\nx-goog-storage-class: COLD",
    "201\ncontent-md5: 1B2M2Y8AsgTpgAmY7PhCfg==\nx-ms-content-crc64: iJh5CoYUi64=\nx-ms-version-id: 2\nx-ms-meta-a: \u{fc}\n\
     x-ms-blob-content-md5: 1B2M2Y8AsgTpgAmY7PhCfg==\nx-ms-access-tier: Cool\netag: 0x8D",
];

fn mutated(good: &[u8], others: &[&str], random: &mut StdRng) -> Vec<u8> {
    let mut bytes = good.to_vec();
    for _ in 0..random.random_range(1..6) {
        let at = random.random_range(0..=bytes.len());
        let to = random.random_range(at..=bytes.len());
        match random.random_range(0..5) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, random.random()),
            2 => drop(bytes.drain(at..to)),
            3 => {
                let other = others[random.random_range(0..others.len())].as_bytes();
                let from = random.random_range(0..other.len());
                let length = random.random_range(0..other.len() - from);
                bytes.splice(at..at, other[from..from + length].iter().copied());
            }
            _ if at < bytes.len() => bytes[at] = random.random(),
            _ => bytes.push(random.random()),
        }
    }
    bytes
}

/// Runs `entry` on each of `good`, and on mutations of it.
fn drive(name: &str, entry: fn(&[u8]), good: &[&str]) {
    seeds::keep(name, &good.iter().map(|seed| seed.as_bytes().to_vec()).collect::<Vec<_>>());
    let mut random = StdRng::seed_from_u64(20_261_122);
    for seed in good {
        entry(seed.as_bytes());
        for _ in 0..MUTATIONS {
            entry(&mutated(seed.as_bytes(), good, &mut random));
        }
    }
}

#[test]
fn answers_survive_any_bytes() {
    drive("answers", answers::run, &SEEDS);
}

#[test]
fn heads_of_answers_survive_any_bytes() {
    drive("headers", headers::run, &HEADS);
}
