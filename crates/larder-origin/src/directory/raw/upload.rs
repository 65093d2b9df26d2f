//! Multipart uploads.

use super::super::DirectoryOrigin;
use super::super::checksum::{Algorithm, Checksum, Kind};
use super::super::upload::{
    Completion, MAX_PART, UploadId, UploadName, WantedPart, check_number, no_such_upload,
};
use super::answer::{
    OWNER, bare, empty, invalid_argument, invalid_request, malformed_xml, show, xml,
};
use super::ask::Ask;
use super::body::Body;
use super::list::encoding;
use super::object::{add_tag, asked_algorithm};
use super::xml::{Document, Element};
use http::HeaderMap;
use http::header::HeaderValue;
use larder_model::{OriginError, RawAnswer};

/// Parts of one page (S3 API, ListParts).
const PAGE_PARTS: u32 = 1000;

impl DirectoryOrigin {
    pub(super) async fn create_raw_upload(&self, ask: &Ask) -> Result<RawAnswer, OriginError> {
        let (bucket, key) = (ask.bucket()?, ask.key()?);
        let checksum = upload_checksum(ask)?;
        let id = self.begin(bucket, key, ask.stored_headers()?, checksum).await?;
        let mut document = Document::new("InitiateMultipartUploadResult");
        document.text("Bucket", bucket).text("Key", key).text("UploadId", id.as_str());
        let mut answer = xml(document);
        if let Some((algorithm, kind)) = checksum {
            let (algorithm, kind) = (algorithm.name(), kind.name());
            let headers = &mut answer.headers;
            headers.insert("x-amz-checksum-algorithm", HeaderValue::from_static(algorithm));
            headers.insert("x-amz-checksum-type", HeaderValue::from_static(kind));
        }
        Ok(answer)
    }

    pub(super) async fn upload_raw_part(
        &self,
        ask: &Ask,
        body: Body,
    ) -> Result<RawAnswer, OriginError> {
        let (upload, number) = part(ask)?;
        let part = self.put_part(&upload, number, body.incoming(ask)?).await?;
        let mut headers = HeaderMap::new();
        add_tag(&mut headers, &part.etag);
        if let Some(sum) = part.checksum
            && let Ok(text) = HeaderValue::from_str(&sum.text())
        {
            headers.insert(sum.algorithm.header(), text);
        }
        Ok(bare(headers))
    }

    pub(super) async fn complete_raw_upload(
        &self,
        ask: &Ask,
        body: Body,
    ) -> Result<RawAnswer, OriginError> {
        let upload = name(ask)?;
        let (begun, _) = self.parts_of(&upload).await?;
        let completion = Completion {
            parts: wanted_parts(&body.xml("CompleteMultipartUpload").await?)?,
            precondition: ask.precondition()?,
            size: object_size(ask)?,
            checksum: match begun.checksum {
                Some((algorithm, _)) => stated(ask, algorithm)?,
                None => ask.header_checksum()?,
            },
        };
        let (etag, checksum) = self.complete(&upload, completion).await?;
        let mut document = Document::new("CompleteMultipartUploadResult");
        document.text("Location", ask.resource());
        document.text("Bucket", &upload.bucket).text("Key", &upload.key);
        document.text("ETag", etag.as_str());
        if let Some(sum) = checksum {
            document
                .text(&sum.algorithm.element(), &sum.text)
                .text("ChecksumType", sum.kind.name());
        }
        Ok(xml(document))
    }

    pub(super) async fn abort_raw_upload(&self, ask: &Ask) -> Result<RawAnswer, OriginError> {
        self.abort(&name(ask)?).await?;
        Ok(empty(204))
    }

    pub(super) async fn show_parts(&self, ask: &Ask) -> Result<RawAnswer, OriginError> {
        let upload = name(ask)?;
        let encoding = encoding(ask)?;
        let most = ask.number("max-parts", PAGE_PARTS)?.min(PAGE_PARTS);
        let marker = ask.number("part-number-marker", 0)?;
        let (begun, parts) = self.parts_of(&upload).await?;
        let mut rest = parts.iter().filter(|part| part.number > marker);
        let page: Vec<_> = rest.by_ref().take(usize::try_from(most).unwrap_or(0)).collect();
        let truncated = most > 0 && rest.next().is_some();
        let mut document = Document::new("ListPartsResult");
        document.text("Bucket", &upload.bucket).text("Key", encoding.show(upload.key.as_str()));
        document.text("UploadId", upload.id.as_str());
        for whose in ["Initiator", "Owner"] {
            document.inside(whose, |owner| {
                owner.text("ID", OWNER).text("DisplayName", OWNER);
            });
        }
        document.text("StorageClass", "STANDARD").plain("PartNumberMarker", marker);
        document.plain("NextPartNumberMarker", page.last().map_or(0, |part| part.number));
        document.plain("MaxParts", most).plain("IsTruncated", truncated);
        encoding.tell(&mut document);
        if let Some((algorithm, kind)) = begun.checksum {
            document.text("ChecksumAlgorithm", algorithm.name()).text("ChecksumType", kind.name());
        }
        for part in page {
            document.inside("Part", |inside| {
                inside.plain("PartNumber", part.number);
                inside.maybe("LastModified", part.last_modified.map(show));
                inside.text("ETag", part.etag.as_str()).plain("Size", part.size);
                if let Some(sum) = &part.checksum {
                    inside.text(&sum.algorithm.element(), sum.text());
                }
            });
        }
        Ok(xml(document))
    }
}

/// The upload that is named.
fn name(ask: &Ask) -> Result<UploadName, OriginError> {
    let id = ask.param("uploadId").and_then(UploadId::new).ok_or_else(no_such_upload)?;
    Ok(UploadName { bucket: ask.bucket()?.clone(), key: ask.key()?.clone(), id })
}

/// The upload and the number of the part that are named.
pub(super) fn part(ask: &Ask) -> Result<(UploadName, u32), OriginError> {
    let number = ask.number("partNumber", 0)?;
    check_number(number)?;
    Ok((name(ask)?, number))
}

/// How the upload is to be summed.
fn upload_checksum(ask: &Ask) -> Result<Option<(Algorithm, Kind)>, OriginError> {
    let algorithm = asked_algorithm(ask)?;
    let kind =
        match ask.header("x-amz-checksum-type")? {
            None => None,
            Some(name) => Some(Kind::of_name(name).ok_or_else(|| {
                invalid_request("Value for x-amz-checksum-type header is invalid.")
            })?),
        };
    let Some(algorithm) = algorithm else {
        return match kind {
            None => Ok(None),
            Some(_) => Err(invalid_request(
                "The x-amz-checksum-type header can only be used with the \
                 x-amz-checksum-algorithm header.",
            )),
        };
    };
    let kind = kind.unwrap_or_else(|| Kind::default_of(algorithm));
    if kind.goes_with(algorithm) {
        return Ok(Some((algorithm, kind)));
    }
    Err(invalid_request(format!(
        "The {} checksum type cannot be used with the {} checksum algorithm.",
        kind.name(),
        algorithm.name().to_lowercase()
    )))
}

/// The checksum that the object is said to have; of a composite one, the part before the `-`.
fn stated(ask: &Ask, algorithm: Algorithm) -> Result<Option<Checksum>, OriginError> {
    let Some(text) = ask.header(algorithm.header())? else { return ask.header_checksum() };
    let sum = text.split_once('-').map_or(text, |(sum, _)| sum);
    let invalid =
        || invalid_request(format!("Value for {} header is invalid.", algorithm.header()));
    Checksum::parse(algorithm, sum).map(Some).ok_or_else(invalid)
}

fn object_size(ask: &Ask) -> Result<Option<u64>, OriginError> {
    let Some(text) = ask.header("x-amz-mp-object-size")? else { return Ok(None) };
    let invalid = || invalid_argument("Value for x-amz-mp-object-size header is invalid.");
    text.parse().map(Some).map_err(|_| invalid())
}

/// The parts that a CompleteMultipartUpload names.
fn wanted_parts(root: &Element) -> Result<Vec<WantedPart>, OriginError> {
    let mut known = vec!["PartNumber".to_owned(), "ETag".to_owned()];
    known.extend(Algorithm::ALL.map(Algorithm::element));
    let known: Vec<_> = known.iter().map(String::as_str).collect();
    let parts: Result<Vec<_>, _> =
        root.children(&["Part"])?.iter().map(|part| wanted_part(part, &known)).collect();
    let parts = parts?;
    if parts.len() > usize::try_from(MAX_PART).unwrap_or(usize::MAX) {
        return Err(malformed_xml());
    }
    Ok(parts)
}

fn wanted_part(part: &Element, known: &[&str]) -> Result<WantedPart, OriginError> {
    part.children(known)?;
    let number = part.text_of("PartNumber")?.and_then(|number| number.trim().parse().ok());
    let etag = part.text_of("ETag")?.ok_or_else(malformed_xml)?.trim().to_owned();
    let mut checksum = None;
    for algorithm in Algorithm::ALL {
        if let Some(text) = part.text_of(&algorithm.element())? {
            let invalid = || {
                let message = format!("Value for {} is invalid.", algorithm.element());
                invalid_request(message)
            };
            checksum = Some(Checksum::parse(algorithm, text.trim()).ok_or_else(invalid)?);
        }
    }
    Ok(WantedPart { number: number.ok_or_else(malformed_xml)?, etag, checksum })
}
