//! The most memory that the process had at once.

/// The peak of this process's resident bytes; `None` where the system does not say.
pub fn peak_resident() -> Option<u64> {
    peak_resident_in(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// The peak that the text of a `/proc/PID/status` names. Mapped files count while they are in memory.
pub fn peak_resident_in(status: &str) -> Option<u64> {
    let value = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    let kib: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::peak_resident_in;

    #[test]
    fn read_from_the_status_of_a_process() {
        let status = "Name:\tlayerlet\nVmPeak:\t 90000 kB\nVmHWM:\t   12345 kB\nVmRSS:\t   99 kB\n";
        assert_eq!(peak_resident_in(status), Some(12345 * 1024));
        assert_eq!(peak_resident_in("Name:\tkthreadd\n"), None);
        assert_eq!(peak_resident_in("VmHWM:\t twelve kB\n"), None);
    }
}
