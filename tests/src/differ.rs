//! The header differ: the same request at the origin and through a proxy in front of it, and every
//! difference of the two answers: status, each header, body.
//!
//! A scene has objects to begin with and rows of requests. A scene of reads has one bucket, which
//! both ways read, so that dates are the same too; the way through the proxy is taken twice, cold
//! and warm. A scene of writes has twin buckets, one for each way, and what an answer names anew
//! (upload ids, versions) is captured on either side and compared by its role.
//!
//! Invariant: nothing is left out of the comparison but by a line of [`excuses`], with its reason.

pub mod compare;
pub mod excuses;
pub mod reads;
pub mod writes;
pub mod xml;

use crate::client::Reply;
use crate::wire::{Place, Wire};
use anyhow::{Context, Result};
use compare::difference;
use std::collections::BTreeMap;

/// Stands for the bucket of the scene, in a request's place, headers and body.
pub const BUCKET: &str = "{bucket}";

/// An object that is there before a scene begins.
#[derive(Clone, Debug)]
pub struct Object {
    /// The request that makes it.
    pub wire: Wire,
}

/// Where an answer names something that later requests need.
#[derive(Clone, Copy, Debug)]
pub enum Capture {
    /// In a header.
    Header(&'static str),
    /// In the first XML element of a name.
    Element(&'static str),
}

/// One request, and what of its answer has a name for the rows behind it: `{name}` in parameters,
/// headers and bodies.
#[derive(Clone, Debug)]
pub struct Row {
    /// The request.
    pub wire: Wire,
    /// What to capture.
    pub captures: Vec<(&'static str, Capture)>,
}

impl Row {
    /// A row that captures nothing.
    #[must_use]
    pub fn new(wire: Wire) -> Self {
        Self { wire, captures: Vec::new() }
    }

    /// The same with a capture more.
    #[must_use]
    pub fn capture(mut self, name: &'static str, from: Capture) -> Self {
        self.captures.push((name, from));
        self
    }

    /// How people tell it from others.
    #[must_use]
    pub fn told(&self) -> String {
        let Wire { method, key, query, headers, coding, .. } = &self.wire;
        let key = key.as_deref().unwrap_or_default();
        let key: String = key.chars().take(40).collect();
        let query: Vec<String> = query
            .iter()
            .map(|(name, value)| match value {
                Some(value) => format!("{name}={value}"),
                None => name.clone(),
            })
            .collect();
        format!("{method} /{key:?}?{} {headers:?} {coding:?}", query.join("&"))
    }
}

/// Requests over one state.
#[derive(Clone, Debug)]
pub struct Scene {
    /// What it is about.
    pub name: String,
    /// Whether its rows change anything.
    pub writes: bool,
    /// What is there before.
    pub objects: Vec<Object>,
    /// The requests, in their order.
    pub rows: Vec<Row>,
}

/// Which origin it is: each has quirks of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// moto.
    Moto,
    /// Versity's gateway.
    Versity,
}

/// The two ways, and what was found on them.
pub struct Differ {
    origin: Side,
    direct: Place,
    through: Place,
    /// Requests that were compared, each once for each way and temperature.
    pub compared: usize,
    /// Rows that were sent.
    pub rows: usize,
    /// Which excuses were needed, how often.
    pub excused: BTreeMap<&'static str, usize>,
    /// What differed.
    pub differences: Vec<String>,
}

/// What a side of a scene calls things.
#[derive(Clone, Debug, Default)]
struct Names(Vec<(String, String)>);

impl Names {
    fn fill(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
    }

    /// The text with roles in the place of names.
    fn blind(&self, text: &str) -> String {
        let long = self.0.iter().filter(|(_, value)| !value.is_empty());
        long.fold(text.to_owned(), |text, (name, value)| text.replace(value.as_str(), name))
    }

    fn wire(&self, wire: &Wire) -> Wire {
        let mut wire = wire.clone();
        wire.bucket = self.fill(&wire.bucket);
        for (_, value) in &mut wire.query {
            *value = value.as_ref().map(|value| self.fill(value));
        }
        for (_, value) in &mut wire.headers {
            *value = self.fill(value);
        }
        if let Ok(text) = std::str::from_utf8(&wire.body)
            && text.contains('{')
        {
            wire.body = self.fill(text).into();
        }
        wire
    }
}

impl Differ {
    /// Between an origin and a proxy in front of it.
    #[must_use]
    pub fn between(origin: Side, direct: Place, through: Place) -> Self {
        Self {
            origin,
            direct,
            through,
            compared: 0,
            rows: 0,
            excused: BTreeMap::new(),
            differences: Vec::new(),
        }
    }

    /// Plays the scenes.
    pub async fn play(&mut self, scenes: &[Scene]) -> Result<()> {
        for (number, scene) in scenes.iter().enumerate() {
            let told = || format!("scene {:?}", scene.name);
            if scene.writes {
                self.write(number, scene).await.with_context(told)?;
            } else {
                self.read(number, scene).await.with_context(told)?;
            }
        }
        Ok(())
    }

    async fn read(&mut self, number: usize, scene: &Scene) -> Result<()> {
        let bucket = format!("scene-{number:03}-read");
        let mut names = self.prepare(&bucket, scene).await?;
        for row in &scene.rows {
            let wire = names.wire(&row.wire);
            let direct = self.direct.send(&wire).await?;
            for temperature in ["cold", "warm"] {
                let through = self.through.send(&wire).await?;
                let told = format!("{} [{}] {temperature}", row.told(), scene.name);
                self.compare(&told, row, &direct, &through, [&names, &names]);
            }
            capture(row, &direct, &mut names);
            self.rows += 1;
        }
        Ok(())
    }

    async fn write(&mut self, number: usize, scene: &Scene) -> Result<()> {
        let buckets = ["direct", "proxed"].map(|way| format!("scene-{number:03}-{way}"));
        let mut names =
            [self.prepare(&buckets[0], scene).await?, self.prepare(&buckets[1], scene).await?];
        for row in &scene.rows {
            let direct = self.direct.send(&names[0].wire(&row.wire)).await?;
            let through = self.through.send(&names[1].wire(&row.wire)).await?;
            capture(row, &direct, &mut names[0]);
            capture(row, &through, &mut names[1]);
            let told = format!("{} [{}]", row.told(), scene.name);
            self.compare(&told, row, &direct, &through, [&names[0], &names[1]]);
            self.rows += 1;
        }
        Ok(())
    }

    /// Makes a bucket with the scene's objects, at the origin. What the origin refuses is not there;
    /// the rows then compare how it is missed.
    async fn prepare(&self, bucket: &str, scene: &Scene) -> Result<Names> {
        let names = Names(vec![(BUCKET.to_owned(), bucket.to_owned())]);
        let made = self.direct.send(&Wire::bucket(http::Method::PUT, bucket)).await?;
        made.expect(200)?;
        for object in &scene.objects {
            self.direct.send(&names.wire(&object.wire)).await?;
        }
        Ok(names)
    }

    fn compare(
        &mut self,
        told: &str,
        row: &Row,
        direct: &Reply,
        through: &Reply,
        names: [&Names; 2],
    ) {
        self.compared += 1;
        let blind =
            |reply: &Reply, names: &Names| compare::Shown::of(reply, |text| names.blind(text));
        let (direct, through) = (blind(direct, names[0]), blind(through, names[1]));
        for difference in difference(&direct, &through) {
            let seen = excuses::Seen {
                origin: self.origin,
                writes: names[0].0.first() != names[1].0.first(),
                wire: &row.wire,
                direct: &direct,
                through: &through,
                difference: &difference,
            };
            match excuses::find(&seen) {
                Some(reason) => *self.excused.entry(reason).or_default() += 1,
                None => self.differences.push(format!("{told}: {difference}")),
            }
        }
    }
}

fn capture(row: &Row, reply: &Reply, names: &mut Names) {
    for (name, from) in &row.captures {
        let found = match from {
            Capture::Header(header) => reply.header(header).to_owned(),
            Capture::Element(element) => {
                let text = reply.text();
                let rest = text.split_once(&format!("<{element}>")).map(|(_, rest)| rest);
                rest.and_then(|rest| rest.split('<').next()).unwrap_or_default().to_owned()
            }
        };
        names.0.push((format!("{{{name}}}"), found));
    }
}
