//! The doubles of OSS and BOS themselves: what the other tests conclude from "it works against the
//! double" holds only if the double refuses what the product refuses and answers as it answers.

use anyhow::{Result, ensure};
use http::Method;
use larder_tests::client::Reply;
use larder_tests::double::{ACCESS_KEY, Double, Product, SECRET, digest};
use larder_tests::moto::Moto;
use larder_tests::sigv4::Account;
use larder_tests::tools::Style;
use larder_tests::wire::{Coding, Place, Wire};

struct Trial {
    double: Double,
    place: Place,
    _moto: Moto,
}

impl Trial {
    async fn start(product: Product, style: Style) -> Result<Self> {
        let moto = Moto::start().await?;
        let double = Double::start(product, &moto).await?;
        let place = Place {
            address: double.address(),
            host: double.host(),
            style,
            account: Account {
                access_key: ACCESS_KEY.into(),
                secret: SECRET.into(),
                region: product.region().into(),
            },
        };
        let trial = Self { double, place, _moto: moto };
        trial.good(&Wire::bucket(Method::PUT, "data")).await?;
        Ok(trial)
    }

    async fn good(&self, wire: &Wire) -> Result<Reply> {
        let reply = self.place.send(wire).await?;
        let seen = self.double.seen();
        ensure!(reply.status.is_success(), "{wire:?}: {} {:?}", reply.text(), seen.last());
        Ok(reply)
    }

    /// An error unless the request is refused so.
    async fn refused(&self, wire: &Wire, status: u16, code: &str) -> Result<Reply> {
        refused(&self.place, wire, status, code).await
    }
}

async fn refused(place: &Place, wire: &Wire, status: u16, code: &str) -> Result<Reply> {
    let reply = place.send(wire).await?;
    let right = reply.status == status && reply.text().contains(&format!("<Code>{code}</Code>"));
    ensure!(right, "{wire:?}: {} {}", reply.status, reply.text());
    Ok(reply)
}

fn put(body: &[u8]) -> Wire {
    Wire::object(Method::PUT, "data", "a b/ä").body(body.to_vec())
}

fn get() -> Wire {
    Wire::object(Method::GET, "data", "a b/ä")
}

/// What both refuse, with whatever answers them.
async fn refuses_what_both_refuse(trial: &Trial) -> Result<()> {
    let body = vec![7; 200_000];
    for coding in [Coding::ChunkedTrailer(65_536), Coding::UnsignedTrailer(65_536)] {
        trial.refused(&put(&body).coding(coding), 400, "InvalidArgument").await?;
    }
    let place = &trial.place;
    let with = |change: &dyn Fn(&mut Account)| {
        let mut place = place.clone();
        change(&mut place.account);
        place
    };
    let region = with(&|account| account.region = "us-east-1".into());
    refused(&region, &get(), 400, "AuthorizationHeaderMalformed").await?;
    let secret = with(&|account| account.secret = "another".into());
    refused(&secret, &get(), 403, "SignatureDoesNotMatch").await?;
    refused(&secret, &put(&body).coding(Coding::Chunked(65_536)), 403, "SignatureDoesNotMatch")
        .await?;
    let key = with(&|account| account.access_key = "ANOTHER".into());
    refused(&key, &get(), 403, "InvalidAccessKeyId").await?;
    trial.refused(&get().coding(Coding::Anonymous), 403, "AccessDenied").await?;
    for header in ["x-amz-checksum-crc32", "x-amz-tagging", "x-amz-checksum-mode", "x-amz-other"] {
        trial.refused(&put(b"x").header(header, "x"), 501, "NotImplemented").await?;
    }
    for sub in ["tagging", "versioning", "versions", "policy", "object-lock", "attributes"] {
        trial
            .refused(&Wire::bucket(Method::GET, "data").resource(sub), 501, "NotImplemented")
            .await?;
    }
    let md5 = digest::content_md5(b"other");
    trial.refused(&put(b"x").header("content-md5", &md5), 400, "InvalidDigest").await?;
    // Nothing of all this reached moto.
    refused(place, &get(), 404, "NoSuchKey").await?;
    Ok(())
}

/// Every coding that both take leaves the same bytes.
async fn takes_what_both_take(trial: &Trial) -> Result<()> {
    let body: Vec<u8> = (0..200_000_u32).map(|index| (index % 251) as u8).collect();
    let codings =
        [Coding::Signed, Coding::Unsigned, Coding::Presigned(60), Coding::Chunked(70_000)];
    for coding in codings {
        let typed = put(&body).header("content-type", "x/y").coding(coding);
        trial.good(&typed).await?;
        let reply = trial.good(&get()).await?;
        ensure!(reply.body == body, "{coding:?}: {} bytes came back", reply.body.len());
        ensure!(reply.header("content-type") == "x/y", "{:?}", reply.headers);
        ensure!(reply.header("content-encoding").is_empty(), "{:?}", reply.headers);
        trial.good(&Wire::object(Method::DELETE, "data", "a b/ä")).await?;
    }
    trial.good(&put(&body)).await?;
    let reply = trial.good(&get().coding(Coding::Presigned(60))).await?;
    ensure!(reply.body == body);
    Ok(())
}

/// A multipart upload of two parts; gives the answer to its completion.
async fn multipart(trial: &Trial, parts: [&[u8]; 2]) -> Result<Reply> {
    let begun =
        trial.good(&Wire::object(Method::POST, "data", "parts").resource("uploads")).await?;
    let text = begun.text();
    let id = text.split("<UploadId>").nth(1).and_then(|rest| rest.split('<').next());
    let id = id.unwrap_or_default();
    let mut list = String::new();
    for (number, body) in (1..).zip(parts) {
        let number = number.to_string();
        let part = Wire::object(Method::PUT, "data", "parts").body(body.to_vec());
        let done = trial.good(&part.query("partNumber", &number).query("uploadId", id)).await?;
        let tag = done.header("etag");
        list += &format!("<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>");
    }
    let list = format!("<CompleteMultipartUpload>{list}</CompleteMultipartUpload>");
    let wire = Wire::object(Method::POST, "data", "parts").query("uploadId", id).body(list);
    trial.good(&wire).await
}

#[tokio::test]
async fn the_double_of_oss_refuses_what_oss_refuses() -> Result<()> {
    let trial = Trial::start(Product::Oss, Style::Virtual).await?;
    refuses_what_both_refuse(&trial).await?;
    let path = Place { style: Style::Path, ..trial.place.clone() };
    refused(&path, &get(), 403, "SecondLevelDomainForbidden").await?;
    let address = Place { host: trial.place.address.clone(), ..path };
    refused(&address, &get(), 403, "SecondLevelDomainForbidden").await?;
    let uploads = Wire::bucket(Method::GET, "data").resource("uploads");
    trial.refused(&uploads, 501, "NotImplemented").await?;
    let many = "<Delete><Object><Key>a b/ä</Key></Object></Delete>";
    let many = Wire::bucket(Method::POST, "data").resource("delete").body(many);
    let reply = trial.refused(&many, 400, "MissingArgument").await?;
    ensure!(reply.text().contains("<EC>0016-00000606</EC>"), "{}", reply.text());
    trial.good(&many.clone().header("content-md5", &digest::content_md5(&many.body))).await?;
    let reply = trial.place.send(&put(b"x").coding(Coding::UnsignedTrailer(9))).await?;
    ensure!(reply.text().contains("<EC>0017-00000804</EC>"), "{}", reply.text());
    Ok(())
}

#[tokio::test]
async fn the_double_of_oss_answers_as_oss_answers() -> Result<()> {
    let trial = Trial::start(Product::Oss, Style::Virtual).await?;
    takes_what_both_take(&trial).await?;
    let body = vec![9; 6 << 20];
    let put = trial.good(&put(&body)).await?;
    let tag = put.header("etag").to_owned();
    ensure!(tag == tag.to_uppercase() && tag != tag.to_lowercase(), "{tag}");
    let crc = digest::crc64(&body).to_string();
    ensure!(put.header("x-oss-hash-crc64ecma") == crc, "{:?}", put.headers);
    let part = trial.good(&get().header("range", "bytes=5-9").header("if-match", &tag)).await?;
    ensure!(part.status == 206 && part.body.len() == 5 && part.header("etag") == tag);
    for name in ["x-oss-request-id", "x-oss-server-time", "x-oss-object-type"] {
        ensure!(!part.header(name).is_empty(), "no {name}: {:?}", part.headers);
    }
    ensure!(part.header("x-oss-hash-crc64ecma") == crc, "a range without the object's: {part:?}");
    ensure!(part.header("x-oss-object-type") == "Normal");
    ensure!(
        part.header("x-amz-request-id").is_empty() && part.header("x-amz-version-id").is_empty()
    );
    let unchanged = trial.place.send(&get().header("if-none-match", &tag)).await?;
    ensure!(unchanged.status == 304, "{unchanged:?}");

    let done = multipart(&trial, [&body, b"the end"]).await?;
    let whole = [body.as_slice(), b"the end"].concat();
    let crc = digest::crc64(&whole).to_string();
    ensure!(done.header("x-oss-hash-crc64ecma") == crc, "{:?}", done.headers);
    let head = trial.good(&Wire::object(Method::HEAD, "data", "parts")).await?;
    ensure!(head.header("x-oss-hash-crc64ecma") == crc, "{:?}", head.headers);
    ensure!(head.header("x-oss-object-type") == "Multipart", "{:?}", head.headers);
    ensure!(head.header("content-length") == whole.len().to_string(), "{:?}", head.headers);
    let tag = head.header("etag").trim_matches('"').to_owned();
    ensure!(done.text().contains(&tag) && tag.ends_with("-2"), "{tag} {}", done.text());
    for list in [
        Wire::bucket(Method::GET, "data").query("list-type", "2"),
        Wire::bucket(Method::GET, "data"),
    ] {
        let text = trial.good(&list).await?.text();
        ensure!(text.contains(&tag), "{text}");
    }
    let page = Wire::bucket(Method::GET, "data").query("list-type", "2").query("max-keys", "1");
    let page = trial.good(&page).await?.text();
    ensure!(page.contains("<NextContinuationToken>"), "{page}");
    Ok(())
}

#[tokio::test]
async fn the_double_of_bos_refuses_what_bos_refuses() -> Result<()> {
    for style in [Style::Virtual, Style::Path] {
        refuses_what_both_refuse(&Trial::start(Product::Bos, style).await?).await?;
    }
    let trial = Trial::start(Product::Bos, Style::Virtual).await?;
    for header in ["x-amz-grant-read", "x-amz-server-side-encryption"] {
        trial.refused(&put(b"x").header(header, "x"), 501, "NotImplemented").await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_double_of_bos_answers_as_bos_answers() -> Result<()> {
    for style in [Style::Virtual, Style::Path] {
        takes_what_both_take(&Trial::start(Product::Bos, style).await?).await?;
    }
    let trial = Trial::start(Product::Bos, Style::Path).await?;
    for key in ["a", "b", "c"] {
        trial.good(&Wire::object(Method::PUT, "data", key).body(key.as_bytes().to_vec())).await?;
    }
    let reply = trial.good(&Wire::object(Method::GET, "data", "a")).await?;
    ensure!(
        reply.header("x-amz-checksum-crc32") == digest::base64(&digest::crc32(b"a").to_be_bytes())
    );
    for name in ["x-bce-request-id", "x-bce-debug-id"] {
        ensure!(!reply.header(name).is_empty(), "no {name}: {:?}", reply.headers);
    }
    let two = Wire::bucket(Method::GET, "data").query("list-type", "2").query("max-keys", "2");
    let page = trial.good(&two).await?.text();
    let lost = page.contains("<IsTruncated>true</IsTruncated>") && !page.contains("Token>");
    ensure!(lost && page.contains("<Key>a</Key>"), "{page}");
    // A token is not known either: the first page comes again, for ever.
    let again = trial.good(&two.query("continuation-token", "b")).await?.text();
    ensure!(again.contains("<Key>a</Key>"), "{again}");
    let one = Wire::bucket(Method::GET, "data").query("max-keys", "2").query("marker", "b");
    let page = trial.good(&one).await?.text();
    ensure!(page.contains("<Key>c</Key>") && !page.contains("<Key>b</Key>"), "{page}");
    Ok(())
}
