#include "placement/cost/published_specs.h"

#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft {
namespace {

constexpr double kGiga = 1e9;
constexpr double kTera = 1e12;
constexpr int64_t kGigabyte = 1'000'000'000;
constexpr int64_t kGibibyte = int64_t{1} << 30;

// Peaks without structured sparsity. `matrix` is of products of float32 as the device does them by
// default (A100 and newer: TF32 tensor cores), `half` of float16 and bfloat16 with sums in float32
// (0: float16 alone, or none), `vector` of elementwise float32.
struct DeviceDataSheet {
  const char* name;
  double matrix;
  double float16;
  double bfloat16;
  double float64;
  double vector;
  double bytes_per_second;
  int64_t memory_bytes;
  const char* source;
};

constexpr DeviceDataSheet kGpus[] = {
    {"P100-16GB", 10.6 * kTera, 21.2 * kTera, 0, 5.3 * kTera, 10.6 * kTera, 732 * kGiga,
     16 * kGibibyte, "NVIDIA Tesla P100 data sheet (SXM2), 2016"},
    {"V100-16GB", 15.7 * kTera, 125 * kTera, 0, 7.8 * kTera, 15.7 * kTera, 900 * kGiga,
     16 * kGibibyte, "NVIDIA V100 data sheet (SXM2), 2020"},
    {"V100-32GB", 15.7 * kTera, 125 * kTera, 0, 7.8 * kTera, 15.7 * kTera, 900 * kGiga,
     32 * kGibibyte, "NVIDIA V100 data sheet (SXM2), 2020"},
    {"T4", 8.1 * kTera, 65 * kTera, 0, 0.25 * kTera, 8.1 * kTera, 320 * kGiga, 16 * kGigabyte,
     "NVIDIA T4 data sheet, 2019"},
    {"A10", 62.5 * kTera, 125 * kTera, 125 * kTera, 0.49 * kTera, 31.2 * kTera, 600 * kGiga,
     24 * kGigabyte, "NVIDIA A10 data sheet, 2022"},
    {"L4", 60 * kTera, 121 * kTera, 121 * kTera, 0.49 * kTera, 30.3 * kTera, 300 * kGiga,
     24 * kGigabyte, "NVIDIA L4 data sheet, 2023"},
    {"A100-40GB", 156 * kTera, 312 * kTera, 312 * kTera, 19.5 * kTera, 19.5 * kTera, 1555 * kGiga,
     40 * kGibibyte, "NVIDIA A100 data sheet (SXM4), 2021"},
    {"A100-80GB", 156 * kTera, 312 * kTera, 312 * kTera, 19.5 * kTera, 19.5 * kTera, 2039 * kGiga,
     80 * kGibibyte, "NVIDIA A100 data sheet (SXM4), 2021"},
    {"H100-80GB", 495 * kTera, 989 * kTera, 989 * kTera, 67 * kTera, 67 * kTera, 3350 * kGiga,
     80 * kGibibyte, "NVIDIA H100 data sheet (SXM5), 2023"},
    {"H200-141GB", 495 * kTera, 989 * kTera, 989 * kTera, 67 * kTera, 67 * kTera, 4800 * kGiga,
     141 * kGigabyte, "NVIDIA H200 data sheet (SXM), 2024"},
};

// What a product of so many FLOPs attains of a GPU's peak: cuBLAS on an A100 reaches about 0.8 of
// it for the products of large transformers, and falls off where the tiles no longer fill the
// device. An assumption, in this form for all of them.
constexpr RateCurve::Point kGpuShares[] = {{1e6, 0.002}, {1e7, 0.015}, {1e8, 0.11}, {1e9, 0.38},
                                           {1e10, 0.65}, {1e11, 0.78}, {1e12, 0.82}};
// The same of memory bandwidth, by bytes.
constexpr RateCurve::Point kGpuByteShares[] = {{1e5, 0.04}, {1e6, 0.3}, {1e7, 0.75}, {1e8, 0.88}};
// The tiles of a product are loaded before their arithmetic and stored after it, and a device runs
// few of them at once to hide that behind. An assumption, chosen on Narayanan et al. 2021, table 1
// (tools/bench/megatron_table): with 0 its smallest model came out too fast, with 1 all ten are
// about right.
constexpr double kGpuProductExposed = 1;
constexpr double kGpuLaunchSeconds = 4e-6;

// Per thread. A core of today's servers reaches 80 to 160 GFLOP/s of float32 with AVX2 or AVX-512.
constexpr RateCurve::Point kCpuFlops[] = {
    {1e3, 1 * kGiga}, {1e5, 20 * kGiga}, {1e6, 50 * kGiga}, {1e7, 80 * kGiga}, {1e8, 90 * kGiga}};
// Small operands come from the caches, large ones from memory that all threads share.
constexpr RateCurve::Point kCpuBytes[] = {
    {1e3, 5 * kGiga}, {1e5, 30 * kGiga}, {1e6, 25 * kGiga}, {1e8, 12 * kGiga}};
constexpr double kCpuElementwiseFlops = 8 * kGiga;
constexpr char kCpuSource[] = "assumed: a thread of a common server processor";

struct LinkDataSheet {
  const char* name;
  double bytes_per_second;  // what a stream of large messages attains, one direction
  double latency_seconds;
  double busy_seconds;  // of a thread, per message
  const char* source;
};

// GPU links: 80 % of the peak for NVLink, 85 % for PCI Express, 92 % for InfiniBand, which is about
// what NCCL's tests attain with large messages.
constexpr LinkDataSheet kLinks[] = {
    {"nvlink2", 0.8 * 150 * kGiga, 6e-6, 4e-6, "NVIDIA V100: 6 links of 25 GB/s a direction"},
    {"nvlink3", 0.8 * 300 * kGiga, 6e-6, 4e-6, "NVIDIA A100: 12 links of 25 GB/s a direction"},
    {"nvlink4", 0.8 * 450 * kGiga, 6e-6, 4e-6, "NVIDIA H100: 18 links of 25 GB/s a direction"},
    {"pcie3", 0.85 * 15.75 * kGiga, 1e-5, 4e-6, "PCI Express 3.0, 16 lanes of 8 GT/s"},
    {"pcie4", 0.85 * 31.5 * kGiga, 1e-5, 4e-6, "PCI Express 4.0, 16 lanes of 16 GT/s"},
    {"pcie5", 0.85 * 63 * kGiga, 1e-5, 4e-6, "PCI Express 5.0, 16 lanes of 32 GT/s"},
    {"infiniband-edr", 0.92 * 12.5 * kGiga, 8e-6, 4e-6, "InfiniBand EDR, 100 Gbit/s"},
    {"infiniband-hdr", 0.92 * 25 * kGiga, 8e-6, 4e-6, "InfiniBand HDR, 200 Gbit/s"},
    {"infiniband-ndr", 0.92 * 50 * kGiga, 8e-6, 4e-6, "InfiniBand NDR, 400 Gbit/s"},
    {"ethernet-1g", 0.94 * 0.125 * kGiga, 1.2e-4, 2e-5, "1 Gbit/s Ethernet with TCP"},
    {"ethernet-10g", 0.94 * 1.25 * kGiga, 8e-5, 2e-5, "10 Gbit/s Ethernet with TCP"},
    {"ethernet-25g", 0.94 * 3.125 * kGiga, 7e-5, 2e-5, "25 Gbit/s Ethernet with TCP"},
    {"ethernet-100g", 0.5 * 12.5 * kGiga, 7e-5, 2e-5,
     "100 Gbit/s Ethernet with TCP, which one stream fills by half"},
    {"loopback", 2.5 * kGiga, 7e-5, 2e-5, "assumed: gRPC streams on a machine of its own"},
};

// The link of kLinks between a GPU's memory and its host, by how the names of its generation begin:
// PCI Express with 16 lanes as in the data sheets of the table above, version 5 from Hopper on, 4
// from Ampere on.
constexpr std::pair<const char*, const char*> kHostLinks[] = {
    {"B", "pcie5"}, {"H", "pcie5"}, {"A", "pcie4"}, {"L", "pcie4"}};
constexpr char kOldestHostLink[] = "pcie3";

std::string HostLinkOf(const std::string& gpu) {
  for (const auto& [begin, link] : kHostLinks) {
    if (gpu.rfind(begin, 0) == 0) return link;
  }
  return kOldestHostLink;
}

template <typename Points>
RateCurve Scaled(const Points& shares, double peak) {
  RateCurve curve;
  for (const RateCurve::Point& point : shares) {
    curve.points.push_back({point.work, point.per_second * peak});
  }
  return curve;
}

DeviceProfile ProfileOf(const DeviceDataSheet& sheet) {
  DeviceProfile device;
  device.name = sheet.name;
  device.source = absl::StrCat(sheet.source, "; the share attained by size is assumed");
  for (const auto& [dtype, peak] : {std::pair(DType::kFloat32, sheet.matrix),
                                    {DType::kFloat16, sheet.float16},
                                    {DType::kBfloat16, sheet.bfloat16},
                                    {DType::kFloat64, sheet.float64}}) {
    if (peak > 0) device.contraction[dtype] = Scaled(kGpuShares, peak);
  }
  device.elementwise = Scaled(kGpuByteShares, sheet.bytes_per_second);
  device.movement = device.elementwise;
  device.elementwise_flops = 0.5 * sheet.vector;
  device.product_exposed = kGpuProductExposed;
  device.node_seconds = kGpuLaunchSeconds;
  device.wake_seconds = 3e-5;
  device.step_seconds = 1e-4;
  device.memory_bytes = sheet.memory_bytes;
  for (const LinkDataSheet& link : kLinks) {
    if (link.name != HostLinkOf(device.name)) continue;
    device.host_bytes_per_second = link.bytes_per_second;
    device.host_copy_seconds = link.latency_seconds;
  }
  return device;
}

absl::Status UnknownName(const char* what, const std::string& name,
                         const std::vector<std::string>& names) {
  return absl::InvalidArgumentError(absl::StrCat("no published specs of ", what, " '", name,
                                                 "' are built in; there are ",
                                                 absl::StrJoin(names, ", ")));
}

}  // namespace

absl::StatusOr<DeviceProfile> PublishedDevice(const std::string& model) {
  for (const DeviceDataSheet& sheet : kGpus) {
    if (absl::AsciiStrToLower(sheet.name) == absl::AsciiStrToLower(model)) {
      return ProfileOf(sheet);
    }
  }
  return UnknownName("device model", model, PublishedDeviceNames());
}

DeviceProfile CommonGpu() { return ProfileOf(kGpus[0]); }

DeviceProfile CommonCpu(int threads) {
  DeviceProfile device;
  device.name = absl::StrCat("cpu-", threads, "-threads");
  device.source = kCpuSource;
  device.threads = threads;
  device.contraction[DType::kFloat32] = Scaled(kCpuFlops, threads);
  device.contraction[DType::kFloat64] = Scaled(kCpuFlops, 0.4 * threads);
  device.elementwise = Scaled(kCpuBytes, 1);
  device.movement = device.elementwise;
  device.elementwise_flops = kCpuElementwiseFlops * threads;
  device.node_seconds = 5e-7;
  device.wake_seconds = 4e-5;
  device.step_seconds = 5e-5;
  return device;
}

absl::StatusOr<LinkProfile> PublishedLink(const std::string& kind) {
  for (const LinkDataSheet& sheet : kLinks) {
    if (sheet.name != absl::AsciiStrToLower(kind)) continue;
    LinkProfile link;
    link.source = sheet.source;
    link.latency_seconds = sheet.latency_seconds;
    link.bytes_per_second = sheet.bytes_per_second;
    link.send_seconds = sheet.busy_seconds;
    link.receive_seconds = sheet.busy_seconds;
    return link;
  }
  return UnknownName("link kind", kind, PublishedLinkNames());
}

std::vector<std::string> PublishedDeviceNames() {
  std::vector<std::string> names;
  for (const DeviceDataSheet& sheet : kGpus) names.emplace_back(sheet.name);
  return names;
}

std::vector<std::string> PublishedLinkNames() {
  std::vector<std::string> names;
  for (const LinkDataSheet& sheet : kLinks) names.emplace_back(sheet.name);
  return names;
}

}  // namespace weft
