//! Every operation of S3 ("Actions" in the S3 API Reference, without S3 on Outposts, S3 Control and
//! the directory buckets' own), and those of OSS: what it is told by and what it needs.
//!
//! `config/README.md` shows the same table, and a test compares the two.
//!
//! Invariant: a request that no row tells is not passed on. So an operation that S3 gets tomorrow is
//! `NotImplemented` here until somebody has thought about what it needs.

/// Methods that S3 knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    Get,
    Head,
    Put,
    Post,
    Delete,
}

/// What a request is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum On {
    Service,
    Bucket,
    Object,
}

/// How an operation is dealt with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    /// Parsed, and answered from the cache or by typed requests to the origin.
    Cached,
    /// Passed on; changes nothing.
    Read,
    /// Passed on; changes the object that it names, or is a step towards that.
    Write,
    /// Passed on; may change anything in the bucket.
    BucketWrite,
    /// Known, and not passed on.
    Refused,
}

/// Which grant an operation needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Needs {
    /// None that could be named.
    Nothing,
    /// To read the dataset of the key.
    ReadKey,
    /// To write the dataset of the key.
    WriteKey,
    /// To read any dataset of the bucket.
    ReadAny,
    /// To read everything under the request's `prefix`.
    ReadPrefix,
    /// To read all of the bucket.
    ReadBucket,
    /// To write all of the bucket.
    WriteBucket,
    /// To write all of every bucket: the request may name other buckets in its body.
    WriteEvery,
}

/// What a request brings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Brings {
    /// Nothing that counts.
    Nothing,
    /// A document of up to 2 MiB.
    Document,
    /// A document, with the checksums of the object in the headers.
    Completion,
    /// The bytes of an object or of a part.
    Object,
}

/// What an answer shows of the origin's names, which matters behind an alias.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shows {
    /// No names.
    Nothing,
    /// Names in elements that can be mapped back.
    Names,
    /// Names that cannot be mapped back, or the request itself holds such: denied behind an alias.
    Hidden,
}

/// Sets of headers that are passed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Set {
    /// Of a GET or HEAD.
    Read,
    /// Of a new object: its metadata, who may read it, how it is kept.
    Object,
    /// Of the source of a copy.
    Copy,
    /// Of the bytes of a part.
    Part,
    /// Of the completion of a multipart upload.
    Completion,
    /// Of a deletion.
    Deletion,
    /// Of a setting.
    Setting,
}

/// One operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Row {
    /// S3's name, and the metrics' label.
    pub(crate) name: &'static str,
    pub(crate) verb: Verb,
    pub(crate) on: On,
    /// The query parameters that tell it.
    pub(crate) marks: &'static [&'static str],
    /// Whether `x-amz-copy-source` tells it as well.
    pub(crate) copies: bool,
    pub(crate) class: Class,
    /// For a write: whether the object is another one afterwards. A part of an upload is not seen.
    pub(crate) lasting: bool,
    pub(crate) needs: Needs,
    pub(crate) brings: Brings,
    pub(crate) shows: Shows,
    /// Further query parameters.
    pub(crate) takes: &'static [&'static str],
    pub(crate) headers: &'static [Set],
}

impl Row {
    const fn takes(mut self, takes: &'static [&'static str]) -> Self {
        self.takes = takes;
        self
    }

    const fn brings(mut self, brings: Brings) -> Self {
        self.brings = brings;
        self
    }

    const fn shows(mut self, shows: Shows) -> Self {
        self.shows = shows;
        self
    }

    const fn headers(mut self, headers: &'static [Set]) -> Self {
        self.headers = headers;
        self
    }

    const fn needs(mut self, needs: Needs) -> Self {
        self.needs = needs;
        self
    }

    const fn copies(mut self) -> Self {
        self.copies = true;
        self
    }

    /// A step of a multipart upload, before its last.
    const fn step(mut self) -> Self {
        self.lasting = false;
        self
    }
}

const fn row(name: &'static str, verb: Verb, on: On, marks: &'static [&'static str]) -> Row {
    Row {
        name,
        verb,
        on,
        marks,
        copies: false,
        class: Class::Refused,
        lasting: true,
        needs: Needs::Nothing,
        brings: Brings::Nothing,
        shows: Shows::Hidden,
        takes: &[],
        headers: &[],
    }
}

const fn cached(name: &'static str, verb: Verb, on: On, marks: &'static [&'static str]) -> Row {
    let needs = if matches!(on, On::Object) { Needs::ReadKey } else { Needs::ReadAny };
    Row { class: Class::Cached, shows: Shows::Names, ..row(name, verb, on, marks) }.needs(needs)
}

/// A read of an object's side.
const fn read(name: &'static str, marks: &'static [&'static str]) -> Row {
    let row = row(name, Verb::Get, On::Object, marks);
    Row { class: Class::Read, needs: Needs::ReadKey, shows: Shows::Nothing, ..row }
        .takes(&["versionId"])
        .headers(&[Set::Read])
}

/// A write of an object or of its side.
const fn write(name: &'static str, verb: Verb, marks: &'static [&'static str]) -> Row {
    let row = row(name, verb, On::Object, marks);
    Row { class: Class::Write, needs: Needs::WriteKey, shows: Shows::Nothing, ..row }
}

/// A setting of a bucket, read.
const fn setting(name: &'static str, marks: &'static [&'static str]) -> Row {
    let row = row(name, Verb::Get, On::Bucket, marks);
    Row { class: Class::Read, needs: Needs::ReadBucket, ..row }.headers(&[Set::Read])
}

/// A setting of a bucket, changed.
const fn set(name: &'static str, verb: Verb, marks: &'static [&'static str]) -> Row {
    let row = row(name, verb, On::Bucket, marks);
    Row { class: Class::BucketWrite, needs: Needs::WriteBucket, ..row }
        .brings(Brings::Document)
        .headers(&[Set::Setting])
}

/// A setting whose document may send data to other buckets.
const fn export(name: &'static str, verb: Verb, marks: &'static [&'static str]) -> Row {
    set(name, verb, marks).needs(Needs::WriteEvery)
}

/// The row of requests that no other row tells.
pub(crate) static OTHER: Row = row("Other", Verb::Get, On::Service, &[]);

use Verb::{Delete, Get, Head, Post, Put};

/// What GetObject and HeadObject take, where they are passed on.
const OBJECT_PARAMETERS: &[&str] = &[
    "versionId",
    "partNumber",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
];

/// Every operation. Of the rows that tell a request, the one with the most marks is taken.
pub(crate) static TABLE: &[Row] = &[
    // Served by the gateway and the cache.
    cached("GetObject", Get, On::Object, &[]).takes(OBJECT_PARAMETERS).headers(&[Set::Read]),
    cached("HeadObject", Head, On::Object, &[]).takes(OBJECT_PARAMETERS).headers(&[Set::Read]),
    cached("ListObjects", Get, On::Bucket, &[]),
    cached("ListObjectsV2", Get, On::Bucket, &["list-type"]),
    cached("HeadBucket", Head, On::Bucket, &[]),
    cached("GetBucketLocation", Get, On::Bucket, &["location"]),
    cached("ListBuckets", Get, On::Service, &[]),
    // Objects: reads.
    read("GetObjectAcl", &["acl"]),
    read("GetObjectAttributes", &["attributes"]),
    read("GetObjectLegalHold", &["legal-hold"]),
    read("GetObjectMeta", &["objectMeta"]),
    Row { verb: Head, ..read("HeadObjectMeta", &["objectMeta"]) },
    read("GetObjectRetention", &["retention"]),
    read("GetObjectTagging", &["tagging"]),
    read("GetSymlink", &["symlink"]).needs(Needs::ReadBucket).shows(Shows::Hidden),
    read("ListParts", &["uploadId"])
        .takes(&["max-parts", "part-number-marker", "encoding-type"])
        .shows(Shows::Names),
    read("ProcessObject", &["x-oss-process"])
        .takes(OBJECT_PARAMETERS)
        .needs(Needs::ReadBucket)
        .shows(Shows::Hidden),
    Row { verb: Post, ..read("SelectObjectContent", &["select", "select-type"]) }
        .brings(Brings::Document),
    // Objects: writes.
    write("PutObject", Put, &[]).brings(Brings::Object).headers(&[Set::Object]),
    write("CopyObject", Put, &[]).copies().headers(&[Set::Object, Set::Copy]),
    write("DeleteObject", Delete, &[]).takes(&["versionId"]).headers(&[Set::Deletion]),
    write("AppendObject", Post, &["append", "position"])
        .brings(Brings::Object)
        .headers(&[Set::Object]),
    write("CreateMultipartUpload", Post, &["uploads"])
        .step()
        .takes(&["encoding-type"])
        .headers(&[Set::Object])
        .shows(Shows::Names),
    write("UploadPart", Put, &["partNumber", "uploadId"])
        .step()
        .brings(Brings::Object)
        .headers(&[Set::Part]),
    write("UploadPartCopy", Put, &["partNumber", "uploadId"])
        .step()
        .copies()
        .headers(&[Set::Part, Set::Copy]),
    write("CompleteMultipartUpload", Post, &["uploadId"])
        .takes(&["encoding-type"])
        .brings(Brings::Completion)
        .headers(&[Set::Completion])
        .shows(Shows::Names),
    write("AbortMultipartUpload", Delete, &["uploadId"]).step().headers(&[Set::Deletion]),
    write("PutObjectAcl", Put, &["acl"])
        .takes(&["versionId"])
        .brings(Brings::Document)
        .headers(&[Set::Setting]),
    write("PutObjectLegalHold", Put, &["legal-hold"])
        .takes(&["versionId"])
        .brings(Brings::Document)
        .headers(&[Set::Setting]),
    write("PutObjectRetention", Put, &["retention"])
        .takes(&["versionId"])
        .brings(Brings::Document)
        .headers(&[Set::Setting, Set::Deletion]),
    write("PutObjectTagging", Put, &["tagging"])
        .takes(&["versionId"])
        .brings(Brings::Document)
        .headers(&[Set::Setting]),
    write("DeleteObjectTagging", Delete, &["tagging"])
        .takes(&["versionId"])
        .headers(&[Set::Setting]),
    write("RestoreObject", Post, &["restore"])
        .takes(&["versionId"])
        .brings(Brings::Document)
        .headers(&[Set::Setting]),
    write("UpdateObjectEncryption", Put, &["encryption"])
        .takes(&["versionId"])
        .brings(Brings::Document)
        .headers(&[Set::Setting]),
    // Buckets: what shows or touches keys.
    Row { on: On::Bucket, shows: Shows::Names, ..write("PostObject", Post, &[]) }
        .brings(Brings::Object)
        .headers(&[Set::Object]),
    Row {
        class: Class::Write,
        needs: Needs::WriteKey,
        shows: Shows::Names,
        ..set("DeleteObjects", Post, &["delete"])
    }
    .headers(&[Set::Deletion]),
    setting("ListObjectVersions", &["versions"])
        .takes(&[
            "delimiter",
            "encoding-type",
            "key-marker",
            "max-keys",
            "prefix",
            "version-id-marker",
        ])
        .needs(Needs::ReadPrefix)
        .shows(Shows::Names),
    setting("ListMultipartUploads", &["uploads"])
        .takes(&[
            "delimiter",
            "encoding-type",
            "key-marker",
            "max-uploads",
            "prefix",
            "upload-id-marker",
        ])
        .needs(Needs::ReadPrefix)
        .shows(Shows::Names),
    // Buckets themselves.
    set("CreateBucket", Put, &[]),
    set("DeleteBucket", Delete, &[]).brings(Brings::Nothing),
    // Buckets: settings, read.
    setting("GetBucketAbac", &["abac"]),
    setting("GetBucketAccelerateConfiguration", &["accelerate"]),
    setting("GetBucketAcl", &["acl"]),
    setting("GetBucketAnalyticsConfiguration", &["analytics", "id"]),
    setting("GetBucketCors", &["cors"]),
    setting("GetBucketEncryption", &["encryption"]),
    setting("GetBucketInfo", &["bucketInfo"]),
    setting("GetBucketIntelligentTieringConfiguration", &["intelligent-tiering", "id"]),
    setting("GetBucketInventoryConfiguration", &["inventory", "id"]),
    setting("GetBucketLifecycleConfiguration", &["lifecycle"]),
    setting("GetBucketLogging", &["logging"]),
    setting("GetBucketMetadataConfiguration", &["metadataConfiguration"]),
    setting("GetBucketMetadataTableConfiguration", &["metadataTable"]),
    setting("GetBucketMetricsConfiguration", &["metrics", "id"]),
    setting("GetBucketNotificationConfiguration", &["notification"]),
    setting("GetBucketOwnershipControls", &["ownershipControls"]),
    setting("GetBucketPolicy", &["policy"]),
    setting("GetBucketPolicyStatus", &["policyStatus"]),
    setting("GetBucketReferer", &["referer"]),
    setting("GetBucketReplication", &["replication"]),
    setting("GetBucketRequestPayment", &["requestPayment"]),
    setting("GetBucketStat", &["stat"]),
    setting("GetBucketTagging", &["tagging"]),
    setting("GetBucketVersioning", &["versioning"]),
    setting("GetBucketWebsite", &["website"]),
    setting("GetBucketWorm", &["worm"]),
    setting("GetObjectLockConfiguration", &["object-lock"]),
    setting("GetPublicAccessBlock", &["publicAccessBlock"]),
    setting("ListBucketAnalyticsConfigurations", &["analytics"]).takes(&["continuation-token"]),
    setting("ListBucketIntelligentTieringConfigurations", &["intelligent-tiering"])
        .takes(&["continuation-token"]),
    setting("ListBucketInventoryConfigurations", &["inventory"]).takes(&["continuation-token"]),
    setting("ListBucketMetricsConfigurations", &["metrics"]).takes(&["continuation-token"]),
    // Buckets: settings, changed.
    set("PutBucketAbac", Put, &["abac"]),
    set("PutBucketAccelerateConfiguration", Put, &["accelerate"]),
    set("PutBucketAcl", Put, &["acl"]),
    export("PutBucketAnalyticsConfiguration", Put, &["analytics", "id"]),
    set("PutBucketCors", Put, &["cors"]),
    set("PutBucketEncryption", Put, &["encryption"]),
    set("PutBucketIntelligentTieringConfiguration", Put, &["intelligent-tiering", "id"]),
    export("PutBucketInventoryConfiguration", Put, &["inventory", "id"]),
    set("PutBucketLifecycleConfiguration", Put, &["lifecycle"]),
    export("PutBucketLogging", Put, &["logging"]),
    export("PostBucketLogging", Post, &["logging"]),
    set("PutBucketMetricsConfiguration", Put, &["metrics", "id"]),
    set("PutBucketNotificationConfiguration", Put, &["notification"]),
    set("PutBucketOwnershipControls", Put, &["ownershipControls"]),
    set("PutBucketPolicy", Put, &["policy"]),
    set("PutBucketReferer", Put, &["referer"]),
    export("PutBucketReplication", Put, &["replication"]),
    set("PutBucketRequestPayment", Put, &["requestPayment"]),
    set("PutBucketTagging", Put, &["tagging"]),
    set("PutBucketVersioning", Put, &["versioning"]),
    set("PutBucketWebsite", Put, &["website"]),
    set("PutObjectLockConfiguration", Put, &["object-lock"]),
    set("PutPublicAccessBlock", Put, &["publicAccessBlock"]),
    export("CreateBucketMetadataConfiguration", Post, &["metadataConfiguration"]),
    export("CreateBucketMetadataTableConfiguration", Post, &["metadataTable"]),
    export("UpdateBucketMetadataInventoryTableConfiguration", Put, &["metadataInventoryTable"]),
    export("UpdateBucketMetadataJournalTableConfiguration", Put, &["metadataJournalTable"]),
    // Buckets: settings, removed.
    set("DeleteBucketAnalyticsConfiguration", Delete, &["analytics", "id"]),
    set("DeleteBucketCors", Delete, &["cors"]),
    set("DeleteBucketEncryption", Delete, &["encryption"]),
    set("DeleteBucketIntelligentTieringConfiguration", Delete, &["intelligent-tiering", "id"]),
    set("DeleteBucketInventoryConfiguration", Delete, &["inventory", "id"]),
    set("DeleteBucketLifecycle", Delete, &["lifecycle"]),
    set("DeleteBucketLogging", Delete, &["logging"]),
    set("DeleteBucketMetadataConfiguration", Delete, &["metadataConfiguration"]),
    set("DeleteBucketMetadataTableConfiguration", Delete, &["metadataTable"]),
    set("DeleteBucketMetricsConfiguration", Delete, &["metrics", "id"]),
    set("DeleteBucketNotification", Delete, &["notification"]),
    set("DeleteBucketOwnershipControls", Delete, &["ownershipControls"]),
    set("DeleteBucketPolicy", Delete, &["policy"]),
    set("DeleteBucketReplication", Delete, &["replication"]),
    set("DeleteBucketTagging", Delete, &["tagging"]),
    set("DeleteBucketWebsite", Delete, &["website"]),
    set("DeletePublicAccessBlock", Delete, &["publicAccessBlock"]),
    // Known, and not passed on.
    row("CreateSession", Get, On::Bucket, &["session"]),
    row("GetObjectTorrent", Get, On::Object, &["torrent"]),
    row("ProcessObjectAndSave", Post, On::Object, &["x-oss-process"]),
    row("ProcessObjectLater", Post, On::Object, &["x-oss-async-process"]),
    row("PutLiveChannel", Put, On::Object, &["live"]),
    row("PutSymlink", Put, On::Object, &["symlink"]),
    row("RenameObject", Put, On::Object, &["renameObject"]),
];

#[cfg(test)]
mod tests {
    use super::{Class, Needs, On, Row, Shows, TABLE, Verb};

    fn line(row: &Row) -> String {
        let verb = match row.verb {
            Verb::Get => "GET",
            Verb::Head => "HEAD",
            Verb::Put => "PUT",
            Verb::Post => "POST",
            Verb::Delete => "DELETE",
        };
        let path = match row.on {
            On::Service => "/",
            On::Bucket => "/bucket",
            On::Object => "/bucket/key",
        };
        let mark =
            |mark: &&str| if *mark == "list-type" { "list-type=2" } else { *mark }.to_owned();
        let marks: Vec<String> = row.marks.iter().map(mark).collect();
        let query = if marks.is_empty() { String::new() } else { format!("?{}", marks.join("&")) };
        let copy = if row.copies { " with `x-amz-copy-source`" } else { "" };
        let class = match row.class {
            Class::Cached => "cached",
            Class::Read => "passed on, reads",
            Class::Write => "passed on, writes",
            Class::BucketWrite => "passed on, writes the bucket",
            Class::Refused => "not implemented",
        };
        let needs = match row.needs {
            Needs::Nothing => "\u{2013}",
            Needs::ReadKey => "read the key",
            Needs::WriteKey if row.name == "DeleteObjects" => "write each key",
            Needs::WriteKey if row.copies => "write the key, read the source",
            Needs::WriteKey => "write the key",
            Needs::ReadAny => "read anything there",
            Needs::ReadPrefix => "read everything under the prefix",
            Needs::ReadBucket => "read the bucket",
            Needs::WriteBucket => "write the bucket",
            Needs::WriteEvery => "write every bucket",
        };
        let alias = match (row.class, row.shows) {
            (Class::Refused, _) => "\u{2013}",
            (_, Shows::Hidden) => "denied",
            (_, Shows::Nothing | Shows::Names) => "yes",
        };
        format!("| {} | `{verb} {path}{query}`{copy} | {class} | {needs} | {alias} |", row.name)
    }

    #[test]
    fn the_readme_shows_this_table() {
        let readme = include_str!("../../../../config/README.md");
        let head =
            "| operation | told by | class | needs | behind an alias |\n|---|---|---|---|---|\n";
        let shown = readme.split_once(head).map_or("", |(_, rest)| rest);
        let shown: Vec<&str> = shown.lines().take_while(|line| line.starts_with('|')).collect();
        let expected: Vec<String> = TABLE.iter().map(line).collect();
        let whole = expected.join("\n");
        assert!(shown == expected, "config/README.md is to show this table:\n{head}{whole}");
    }
}
