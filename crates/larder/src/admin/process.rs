//! Metrics of the process itself: memory, uptime, build.

use crate::clock::SystemClock;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Gauge, Opts, Registry};

/// Reads its values when it is scraped.
struct Process {
    clock: SystemClock,
    resident: Gauge,
    uptime: Gauge,
}

/// Registers the metrics of this process.
pub(crate) fn register(registry: &Registry, clock: &SystemClock) -> prometheus::Result<()> {
    let build = Opts::new("larder_build_info", "Always 1; the version is the label.")
        .const_label("version", env!("CARGO_PKG_VERSION"));
    let build = Gauge::with_opts(build)?;
    build.set(1.0);
    registry.register(Box::new(build))?;
    let resident = Gauge::new("process_resident_memory_bytes", "Resident memory of the process.")?;
    let uptime = Gauge::new("larder_uptime_seconds", "Seconds since the start.")?;
    registry.register(Box::new(Process { clock: clock.clone(), resident, uptime }))
}

impl Collector for Process {
    fn desc(&self) -> Vec<&Desc> {
        [self.resident.desc(), self.uptime.desc()].concat()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.uptime.set(self.clock.uptime().as_secs_f64());
        if let Some(bytes) = resident_bytes() {
            self.resident.set(bytes as f64);
        }
        [self.resident.collect(), self.uptime.collect()].concat()
    }
}

/// `VmRSS` of proc(5); `None` where there is no such file.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The machine's name, or `larder` where it has none.
pub(crate) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "larder".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::resident_bytes;

    #[test]
    fn the_process_has_a_resident_size() {
        assert!(resident_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }
}
