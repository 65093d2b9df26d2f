//! s3s with its SigV4 check, serving the hot objects from memory: the most direct S3 server that this library makes.

use async_trait::async_trait;
use larder_benches::hot::all_keys;
use larder_benches::larder::key_pair;
use larder_benches::origin::{Held, Object, accept, hold};
use s3s::auth::SimpleAuth;
use s3s::dto::{ETag, GetObjectInput, GetObjectOutput, StreamingBlob};
use s3s::service::S3ServiceBuilder;
use s3s::{S3, S3Request, S3Response, S3Result, s3_error};
use tokio::net::TcpListener;

struct Memory(Held);

#[async_trait]
impl S3 for Memory {
    async fn get_object(
        &self,
        request: S3Request<GetObjectInput>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        let Some(Object { bytes, etag }) = self.0.get(&request.input.key) else {
            return Err(s3_error!(NoSuchKey));
        };
        let tag = etag.to_str().unwrap_or_default().trim_matches('"');
        Ok(S3Response::new(GetObjectOutput {
            content_length: i64::try_from(bytes.len()).ok(),
            e_tag: Some(ETag::Strong(tag.to_owned())),
            body: Some(StreamingBlob::from(s3s::Body::from(bytes.clone()))),
            ..GetObjectOutput::default()
        }))
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (access_key, secret) = key_pair();
    let mut builder = S3ServiceBuilder::new(Memory(hold(all_keys())));
    builder.set_auth(SimpleAuth::from_single(access_key, secret));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening: {}", listener.local_addr()?);
    accept(listener, builder.build()).await?;
    Ok(())
}
