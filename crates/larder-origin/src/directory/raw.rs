//! Raw requests: what S3 answers, for a folder.
//!
//! Invariant: a request is performed only when every parameter and every `x-amz-` header of it is
//! understood. Anything else is 501 `NotImplemented`, so nothing is ever done but what was asked.

mod answer;
mod ask;
mod body;
mod bucket;
mod copy;
mod list;
mod object;
mod removal;
mod route;
mod tags;
mod upload;
mod xml;

use super::DirectoryOrigin;
use crate::metrics::Operation;
use answer::not_implemented;
use ask::Ask;
use body::Body;
use larder_model::{OriginError, RawAnswer, RawRequest};
use route::Task;

impl DirectoryOrigin {
    /// The answer to a raw request.
    pub(super) async fn answer(&self, request: RawRequest) -> Result<RawAnswer, OriginError> {
        let operation = Operation::of(&request);
        let (ask, body) = Ask::new(self.0.name.clone(), request);
        let done = match route::find(&ask) {
            // Boxed: the largest of these futures would lie inside several others.
            Some(task) => match ask.check_headers() {
                Ok(()) => Box::pin(self.perform(task, &ask, body)).await,
                Err(refused) => Err(refused),
            },
            None => Err(not_implemented(&route::describe(&ask))),
        };
        let result = match done {
            Ok(answer) => Ok(answer),
            Err(error) => answer::of_error(error, &ask.method, &ask.resource()),
        };
        let status = result.as_ref().map(|answer| answer.status).ok();
        self.0.requests.count(operation, status);
        result
    }

    async fn perform(&self, task: Task, ask: &Ask, body: Body) -> Result<RawAnswer, OriginError> {
        match task {
            Task::ListBuckets => self.show_buckets().await,
            Task::CreateBucket => self.create_bucket(ask, body).await,
            Task::DeleteBucket => self.delete_bucket(ask).await,
            Task::HeadBucket => self.bucket(ask.bucket()?).await.map(|_| answer::empty(200)),
            Task::GetLocation => self.show_location(ask).await,
            Task::GetVersioning => self.show_versioning(ask).await,
            Task::GetAcl => self.show_acl(ask).await,
            Task::GetSetting(setting) => self.show_setting(ask, setting).await,
            Task::ListObjects => self.show_objects(ask).await,
            Task::ListVersions => self.show_versions(ask).await,
            Task::ListUploads => self.show_uploads(ask).await,
            Task::DeleteObjects => self.delete_objects(ask, body).await,
            Task::GetObject => self.get_object(ask).await,
            Task::GetAttributes => self.show_attributes(ask).await,
            Task::PutObject if ask.headers.contains_key(copy::SOURCE) => {
                self.copy_object(ask).await
            }
            Task::PutObject => self.put_raw(ask, body).await,
            Task::DeleteObject => self.delete_raw(ask).await,
            Task::GetTagging => self.get_tagging(ask).await,
            Task::PutTagging => self.put_tagging(ask, body).await,
            Task::DeleteTagging => self.delete_tagging(ask).await,
            Task::CreateUpload => self.create_raw_upload(ask).await,
            Task::UploadPart if ask.headers.contains_key(copy::SOURCE) => self.copy_part(ask).await,
            Task::UploadPart => self.upload_raw_part(ask, body).await,
            Task::ListParts => self.show_parts(ask).await,
            Task::CompleteUpload => self.complete_raw_upload(ask, body).await,
            Task::AbortUpload => self.abort_raw_upload(ask).await,
        }
    }
}
