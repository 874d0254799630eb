//! DAX devices by a sysfs of the test's own. `tests/dax_device.rs` uses a real one.

use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

/// A sysfs in which a character device that every Linux has is described as a DAX device.
struct Sysfs {
    root: TempDir,
    device: PathBuf,
}

/// The device that stands in: its mappings are memory of zeroes.
const STAND_IN: &str = "/dev/zero";

impl Sysfs {
    /// Describes the device as one of this size and alignment, in a region of this type.
    fn new(size: &str, align: &str, region: &str) -> Sysfs {
        let root = tempfile::tempdir().expect("directory");
        let region_place = root.path().join("devices/ndbus0/region1");
        let device = region_place.join("dax1.0/dax1.0");
        let bus = root.path().join("bus/dax");
        fs::create_dir_all(&device).expect("directories");
        fs::create_dir_all(&bus).expect("directories");
        fs::create_dir_all(root.path().join("dev/char")).expect("directories");
        symlink(&bus, device.join("subsystem")).expect("links");
        symlink(&device, root.path().join("dev/char/1:5")).expect("links");
        fs::write(region_place.join("devtype"), format!("{region}\n")).expect("writes");
        fs::write(device.join("size"), format!("{size}\n")).expect("writes");
        fs::write(device.join("align"), format!("{align}\n")).expect("writes");
        Sysfs { root, device }
    }

    fn find(&self) -> Result<Option<DaxDevice>, DeviceError> {
        DaxDevice::find(Path::new(STAND_IN), self.root.path())
    }

    fn device(&self) -> DaxDevice {
        self.find().expect("described").expect("a device")
    }
}

/// Checks that the error names the thing, the place and the fix.
fn check(error: &DeviceError, path: &str, parts: &[&str]) {
    let text = error.to_string();
    assert!(text.contains(path) && !text.contains('\n'), "{text}");
    for part in parts {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
}

#[test]
fn a_device_is_described_by_sysfs() {
    let sysfs = Sysfs::new("65011712", "2097152", "nd_pmem");
    let device = sysfs.device();
    assert_eq!((device.size, device.align, device.is_persistent), (65_011_712, 2_097_152, true));
    assert_eq!(device.mappable(1).expect("large enough"), 65_011_712);
    assert!(device.persistence(false).expect("persistent"));
    assert!(device.persistence(true).expect("persistent"), "what is persistent is not emulated");
}

#[test]
fn only_whole_units_of_the_alignment_can_be_mapped() {
    let device = Sysfs::new("5000000", "2097152", "nd_pmem").device();
    assert_eq!(device.mappable(4 << 20).expect("two units"), 4 << 20);
    let error = device.mappable((4 << 20) + 1).expect_err("too small");
    check(&error, STAND_IN, &["has 4194304 bytes, 4194305 are needed", "lower the quota"]);
    let device = Sysfs::new("2000000", "2097152", "nd_pmem").device();
    let error = device.mappable(0).expect_err("less than a unit");
    check(&error, STAND_IN, &["has 0 bytes, 2097152 are needed"]);
}

#[test]
fn volatile_memory_is_taken_only_as_emulated() {
    for region in ["nd_volatile", "cxl_region", "nd_pmem_of_another_name"] {
        let device = Sysfs::new("4194304", "4096", region).device();
        let error = device.persistence(false).expect_err("volatile");
        check(&error, STAND_IN, &["lost with the power", ",assume-dax"]);
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(!device.persistence(true).expect("assumed"));
    }
}

#[test]
fn a_device_of_another_kind_is_refused_unopened() {
    let sysfs = Sysfs::new("4194304", "4096", "nd_pmem");
    let find = |path: &str| DaxDevice::find(Path::new(path), sysfs.root.path());
    let error = find("/dev/null").expect_err("not described");
    check(&error, "/dev/null", &["no DAX device", "/dev/dax0.0"]);
    let bus = sysfs.root.path().join("bus/mem");
    fs::remove_file(sysfs.device.join("subsystem")).expect("removes");
    symlink(bus, sysfs.device.join("subsystem")).expect("links");
    let error = sysfs.find().expect_err("of another bus");
    check(&error, STAND_IN, &["no DAX device", "/dev/dax0.0"]);
}

#[test]
fn a_device_that_does_not_exist_is_not_taken_for_a_file_to_be_made() {
    let sysfs = Sysfs::new("4194304", "4096", "nd_pmem");
    let find = |path: &Path| DaxDevice::find(path, sysfs.root.path());
    let error = find(Path::new("/dev/dax77.0")).expect_err("missing");
    check(&error, "/dev/dax77.0", &["does not exist", "daxctl"]);
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    for file in ["/dev/shm/dax0.0", "/dev/dax0", "/dev/dax0.x", "/dev/dax.0", "/mnt/pmem/dax0.0"] {
        assert_eq!(find(Path::new(file)).expect("a file"), None, "{file}");
    }
    assert_eq!(find(sysfs.root.path()).expect("a directory"), None);
}

#[test]
fn facts_that_are_missing_or_make_no_sense_are_refused_with_their_file() {
    let refused = |size: &str, align: &str, file: &str, problem: &str| {
        let error = Sysfs::new(size, align, "nd_pmem").find().expect_err(problem);
        check(&error, STAND_IN, &[file, problem, "sysfs is mounted"]);
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    };
    refused("many", "4096", "dax1.0/size", "holds 'many', which is no number");
    refused("", "4096", "dax1.0/size", "holds '', which is no number");
    refused("4194304", "0", "dax1.0/align", "holds 0, which is no power of two");
    refused("4194304", "512", "dax1.0/align", "holds 512, which is no power of two from 4096 on");
    refused("4194304", "12288", "dax1.0/align", "holds 12288");
    let sysfs = Sysfs::new("4194304", "4096", "nd_pmem");
    fs::remove_file(sysfs.device.join("align")).expect("removes");
    let error = sysfs.find().expect_err("no alignment");
    check(&error, STAND_IN, &["dax1.0/align", "cannot be read"]);
    let error = DaxDevice::find(Path::new(STAND_IN), Path::new("/nowhere")).expect_err("no sysfs");
    check(&error, STAND_IN, &["/nowhere/dev/char/1:5", "cannot be read", "sysfs is mounted"]);
}
