//! Failures: of the origin, of the connection, of the body; what is sent again and what breaks off.

use super::double::{Double, Step, answer, config, error, limits, silence};
use super::{CRC32, pieces, put, request, send, streamed, with};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream;
use http::{HeaderName, HeaderValue, Method};
use larder_model::{BodyBroken, Origin as _, OriginError, RawBody, RawRequest, Trailer};
use larder_origin::{Dialect, OriginLimits, S3Origin};
use prometheus::Registry;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::TcpListener;

/// Which requests are made when the origin fails first: the number of them, and the last status or
/// `None` for no answer.
async fn check(request: RawRequest, steps: Vec<Step>, requests: usize, status: Option<u16>) {
    let told = format!("{} {:?}", request.method, request.body);
    let double = Double::start(steps).await;
    match send(&double, request).await {
        Ok((answer, _)) => assert_eq!(Some(answer.status), status, "{told}"),
        Err(OriginError::Unreachable { .. }) => assert_eq!(None, status, "{told}"),
        Err(other) => panic!("{told}: {other}"),
    }
    assert_eq!(double.seen().len(), requests, "{told}");
    double.seen().iter().for_each(|seen| seen.verify("cn-test-1"));
}

#[tokio::test]
async fn only_what_cannot_be_done_twice_is_sent_twice() {
    let fine = || answer(200, "", "");
    let failing = || error(500, "InternalError", "");
    let busy = || error(503, "SlowDown", "");
    let whole = || RawBody::Whole("abc".into());
    for step in [failing, busy, silence] {
        check(put(whole()), vec![step(), fine()], 2, Some(200)).await;
        check(request(Method::GET, Some("k"), RawBody::Empty), vec![step(), fine()], 2, Some(200))
            .await;
        check(
            request(Method::DELETE, Some("k"), RawBody::Empty),
            vec![step(), fine()],
            2,
            Some(200),
        )
        .await;
    }
    let post = || request(Method::POST, Some("k"), whole());
    check(post(), vec![failing(), fine()], 1, Some(500)).await;
    check(post(), vec![silence(), fine()], 1, None).await;
    check(put(streamed("abc")), vec![failing(), fine()], 1, Some(500)).await;
    check(put(streamed("abc")), vec![silence(), fine()], 1, None).await;
    let only_new = || with(put(whole()), &[], &[("if-none-match", "*")]);
    check(only_new(), vec![failing(), fine()], 1, Some(500)).await;
    check(only_new(), vec![silence(), fine()], 1, None).await;
    check(only_new(), vec![busy(), fine()], 2, Some(200)).await;
    check(put(whole()), vec![failing(), failing(), failing(), fine()], 3, Some(500)).await;
    check(put(whole()), vec![error(400, "MalformedXML", ""), fine()], 1, Some(400)).await;
}

#[tokio::test]
async fn what_was_never_sent_is_sent_again_also_from_a_stream() {
    let reserved = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = reserved.local_addr().unwrap();
    drop(reserved);
    let patient = OriginLimits {
        attempts: 10_000,
        backoff: Duration::from_millis(2),
        backoff_max: Duration::from_millis(2),
        ..limits()
    };
    let registry = Registry::new();
    let config = config(Dialect::S3, format!("http://{address}"), patient);
    let origin = S3Origin::new(config.clone(), &registry).unwrap();
    let sending = tokio::spawn(async move {
        let post = request(Method::POST, Some("k"), streamed("abc"));
        origin.raw(post).await.map(|answer| answer.status)
    });
    while registry.gather().is_empty() {
        tokio::task::yield_now().await;
    }
    let listener = TcpListener::bind(address).await.unwrap();
    let double = Double::serve(listener, config, vec![answer(200, "", "")]);
    assert_eq!(sending.await.unwrap().unwrap(), 200);
    assert_eq!(double.seen()[0].body, b"abc");
}

/// A body of `len` bytes that begins with `abc` and goes on, once that has arrived, with `rest`: the
/// origin never gets more than the beginning, and no whole request.
async fn check_broken(dialect: Dialect, rest: Vec<Result<&'static str, BodyBroken>>) {
    let told = format!("{dialect:?} {rest:?}");
    let slot = OnceLock::from(HeaderValue::from_static("NSRBwg=="));
    let trailer = Trailer { name: HeaderName::from_static(CRC32), value: Arc::new(slot) };
    let (go, gone) = tokio::sync::oneshot::channel();
    let rest = stream::once(async move {
        gone.await.unwrap();
        pieces(rest)
    });
    let bytes = pieces(vec![Ok("abc")]).chain(rest.flatten()).boxed();
    let body = RawBody::Stream { len: 6, sha256: None, trailer: Some(trailer), bytes };
    let double = Double::with(dialect, limits(), vec![answer(200, "", "")]).await;
    let watched = async {
        double.first(|seen| seen.body.ends_with(b"abc")).await;
        go.send(()).unwrap();
    };
    let (sent, ()) = tokio::join!(send(&double, put(body)), watched);
    assert!(matches!(sent.err().unwrap(), OriginError::BodyBroken), "{told}");
    let seen = double.first(|seen| seen.ended).await;
    assert!(seen.body.ends_with(b"abc"), "{told}: {seen:?}");
    assert_eq!(double.seen().len(), 1, "{told}");
}

#[tokio::test]
async fn a_broken_body_never_completes_the_request() {
    let broken = Err(BodyBroken);
    for rest in
        [vec![broken], vec![], vec![Ok("def"), broken], vec![Ok("defg")], vec![Ok("def"), Ok("g")]]
    {
        check_broken(Dialect::S3, rest.clone()).await;
        check_broken(Dialect::Oss, rest).await;
    }
}

#[tokio::test]
async fn an_early_refusal_is_passed_back_and_ends_the_upload() {
    let double = Double::start(vec![error(403, "AccessDenied", "").unread().hang()]).await;
    let (dropped, told) = tokio::sync::oneshot::channel::<()>();
    let held = stream::once(async move {
        let _held = dropped;
        std::future::pending().await
    });
    let bytes = pieces(vec![Ok("abc")]).chain(held).boxed();
    let body = RawBody::Stream { len: 6, sha256: None, trailer: None, bytes };
    let (answer, text) = send(&double, put(body)).await.unwrap();
    assert_eq!(answer.status, 403);
    assert!(String::from_utf8(text).unwrap().contains("<Code>AccessDenied</Code>"));
    assert!(told.await.is_err(), "the stream is held on to");
    assert!(double.first(|seen| seen.ended).await.body.len() < 6);
}

#[tokio::test]
async fn a_dropped_call_breaks_the_request_off() {
    let double = Double::start(vec![answer(200, "", "")]).await;
    let bytes = pieces(vec![Ok("abc")]).chain(stream::pending()).boxed();
    let body = RawBody::Stream { len: 6, sha256: None, trailer: None, bytes };
    let origin = double.origin.clone();
    let sending = tokio::spawn(async move { origin.raw(put(body)).await.map(|_| ()) });
    double.first(|seen| seen.body == b"abc").await;
    sending.abort();
    assert_eq!(double.first(|seen| seen.ended).await.body, b"abc");
}

#[tokio::test]
async fn a_long_body_may_take_longer_than_an_answer() {
    let limits = OriginLimits { answer_timeout: Duration::from_millis(400), ..limits() };
    let double = Double::with(Dialect::S3, limits, vec![answer(200, "", "")]).await;
    let slow = stream::unfold(0, |count| async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        (count < 10).then(|| (Ok(Bytes::from_static(b"x")), count + 1))
    });
    let body = RawBody::Stream { len: 10, sha256: None, trailer: None, bytes: slow.boxed() };
    assert_eq!(send(&double, put(body)).await.unwrap().0.status, 200);
}

#[tokio::test]
async fn every_wait_has_an_end() {
    let short = OriginLimits {
        answer_timeout: Duration::from_millis(200),
        idle_timeout: Duration::from_millis(200),
        attempts: 1,
        ..limits()
    };
    let silent = || vec![silence().hang()];
    for body in [RawBody::Empty, RawBody::Whole("abc".into()), streamed("abc")] {
        let double = Double::with(Dialect::S3, short.clone(), silent()).await;
        let failed = send(&double, put(body)).await.err().unwrap();
        assert!(failed.to_string().contains("no answer within 200ms"), "{failed}");
    }
    // The client says no more.
    let bytes = pieces(vec![Ok("abc")]).chain(stream::pending()).boxed();
    let body = RawBody::Stream { len: 6, sha256: None, trailer: None, bytes };
    let double = Double::with(Dialect::S3, short.clone(), silent()).await;
    let failed = send(&double, put(body)).await.err().unwrap();
    assert!(matches!(failed, OriginError::BodyBroken), "{failed}");
    // The origin takes no more.
    let bytes = stream::repeat_with(|| Ok(Bytes::from(vec![0; 1 << 20]))).boxed();
    let body = RawBody::Stream { len: 1 << 40, sha256: None, trailer: None, bytes };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = config(Dialect::S3, format!("http://{}", listener.local_addr().unwrap()), short);
    let origin = S3Origin::new(config, &Registry::new()).unwrap();
    let failed = origin.raw(put(body)).await.err().unwrap();
    assert!(failed.to_string().contains("was taken within 200ms"), "{failed}");
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_an_error_of_its_body() {
    let double = Double::start(vec![answer(200, "content-length: 10\r\n", "0123")]).await;
    let get = request(Method::GET, Some("k"), RawBody::Empty);
    let mut answer = double.origin.raw(get).await.unwrap();
    assert_eq!(answer.body.next().await.unwrap().unwrap(), "0123");
    let failed = answer.body.next().await.unwrap().unwrap_err();
    assert!(matches!(failed, OriginError::Unreachable { .. }), "{failed}");
    assert!(answer.body.next().await.is_none());
}

#[tokio::test]
async fn an_origin_that_copies_or_joins_has_longer_to_answer() {
    let short =
        OriginLimits { answer_timeout: Duration::from_millis(100), attempts: 1, ..limits() };
    let copy = || with(put(RawBody::Empty), &[], &[("x-amz-copy-source", "b/k")]);
    let post = || request(Method::POST, Some("k"), RawBody::Whole("<x/>".into()));
    let join = || with(post(), &[("uploadId", "u")], &[]);
    for (request, limit) in [(copy(), "1s"), (join(), "1s"), (post(), "100ms")] {
        let double = Double::with(Dialect::S3, short.clone(), vec![silence().hang()]).await;
        let failed = send(&double, request).await.err().unwrap();
        assert!(failed.to_string().contains(&format!("no answer within {limit}")), "{failed}");
    }
}
