//! Medians, ratios of paired rounds, and the bars that they are held against.

use std::fmt;

/// The figures of several rounds.
#[derive(Debug, Clone, Default)]
pub struct Series(Vec<f64>);

impl Series {
    /// Adds the next round's figure.
    pub fn push(&mut self, figure: f64) {
        self.0.push(figure);
    }

    /// The middle figure, or the mean of the two in the middle; NaN without any.
    #[must_use]
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        match sorted.len() {
            0 => f64::NAN,
            odd if odd % 2 == 1 => sorted[middle],
            _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
        }
    }

    /// The smallest figure.
    #[must_use]
    pub fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The largest figure.
    #[must_use]
    pub fn max(&self) -> f64 {
        self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    /// Each round's figure by the other's of the same round.
    #[must_use]
    pub fn by(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(a, b)| a / b).collect())
    }

    /// Each round's figure less the other's of the same round.
    #[must_use]
    pub fn less(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(a, b)| a - b).collect())
    }
}

impl Extend<f64> for Series {
    fn extend<T: IntoIterator<Item = f64>>(&mut self, figures: T) {
        self.0.extend(figures);
    }
}

/// `median [min–max]`, with the formatter's precision (two digits if it has none).
impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(2);
        let (median, min, max) = (self.median(), self.min(), self.max());
        write!(f, "{median:.digits$} [{min:.digits$}–{max:.digits$}]")
    }
}

/// Which side of the bar is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bar {
    /// The figure must be this or more.
    AtLeast,
    /// The figure must be this or less.
    AtMost,
}

/// The verdicts of a bench.
#[derive(Debug, Default)]
pub struct Verdicts {
    missed: usize,
    lines: Vec<String>,
}

impl Verdicts {
    /// Holds `figure` against `bar`. A figure that is not a number misses.
    pub fn hold(&mut self, what: &str, figure: f64, side: Bar, bar: f64) {
        let (met, sign) = match side {
            Bar::AtLeast => (figure >= bar, "≥"),
            Bar::AtMost => (figure <= bar, "≤"),
        };
        self.missed += usize::from(!met);
        let verdict = if met { "PASS" } else { "MISS" };
        self.lines.push(format!("{verdict}  {what}: {figure:.3} (bar {sign} {bar})"));
    }

    /// Adds the verdicts of another section.
    pub fn join(&mut self, other: Self) {
        self.missed += other.missed;
        self.lines.extend(other.lines);
    }

    /// Whether no bar was missed.
    #[must_use]
    pub fn all_met(&self) -> bool {
        self.missed == 0
    }
}

impl fmt::Display for Verdicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// A size as people write it: 4 KiB, 1 MiB.
#[must_use]
pub fn size_name(bytes: u64) -> String {
    match bytes {
        0x10_0000.. if bytes.is_multiple_of(0x10_0000) => format!("{} MiB", bytes >> 20),
        1024.. if bytes.is_multiple_of(1024) => format!("{} KiB", bytes >> 10),
        1000.. if bytes.is_multiple_of(1000) => format!("{} KB", bytes / 1000),
        _ => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(figures: &[f64]) -> Series {
        Series(figures.to_vec())
    }

    #[test]
    fn medians_are_of_the_middle_and_ratios_are_of_the_same_round() {
        assert_eq!(series(&[3.0, 1.0, 2.0]).median(), 2.0);
        assert_eq!(series(&[4.0, 1.0, 2.0, 3.0]).median(), 2.5);
        assert!(series(&[]).median().is_nan());
        let ratio = series(&[1.0, 9.0, 4.0]).by(&series(&[2.0, 3.0, 4.0]));
        assert_eq!(ratio.to_string(), "1.00 [0.50–3.00]");
        assert_eq!(series(&[1.0, 5.0]).less(&series(&[2.0, 2.0])).0, [-1.0, 3.0]);
    }

    #[test]
    fn a_figure_on_the_bar_passes_and_no_figure_misses() {
        for (figure, side, met) in [
            (0.85, Bar::AtLeast, true),
            (0.849, Bar::AtLeast, false),
            (0.85, Bar::AtMost, true),
            (0.851, Bar::AtMost, false),
            (f64::NAN, Bar::AtLeast, false),
            (f64::NAN, Bar::AtMost, false),
        ] {
            let mut verdicts = Verdicts::default();
            verdicts.hold("it", figure, side, 0.85);
            assert_eq!(verdicts.all_met(), met, "{figure} {side:?}");
            assert!(verdicts.to_string().starts_with(if met { "PASS  it" } else { "MISS  it" }));
        }
    }

    #[test]
    fn sizes_are_named_as_people_write_them() {
        for (bytes, name) in [
            (4096, "4 KiB"),
            (1 << 20, "1 MiB"),
            (512 << 20, "512 MiB"),
            (100_000, "100 KB"),
            (1025, "1025 B"),
        ] {
            assert_eq!(size_name(bytes), name);
        }
    }
}
