#include "placement/cost/published_specs.h"

#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft {
namespace {

constexpr double kGiga = 1e9;
constexpr double kTera = 1e12;
constexpr int64_t kGigabyte = 1'000'000'000;
constexpr int64_t kGibibyte = int64_t{1} << 30;

// How much of the peaks is attained. Hopper: measured by tools/gpu_check on an H200, with cuBLASLt
// 13.1: 680 TFLOP/s in bfloat16 and 51 in float32 at 8192 x 8192 x 8192, 3.70 TB/s in a copy, read
// and written; less the time of a product's memory traffic, which kGpuProductExposed adds.
struct AttainedShares {
  double product;
  double float32;
  double memory;
  const char* source;
};
constexpr AttainedShares kOlder = {
    0.82, 0.82, 0.88, "assumed: what cuBLAS attains on an A100 in products of large transformers"};
constexpr AttainedShares kHopper = {0.737, 0.769, 0.771,
                                    "measured on an H200, and assumed of its relatives"};

// As GpuFigures has them, in tera-operations and gigabytes per second. Where a data sheet gives
// figures with sparsity they are halved.
struct DeviceDataSheet {
  const char* name;
  double float64;
  double float32;
  double tf32;
  double bfloat16;
  double float16;
  double float8;
  double int8;
  double memory_rate;
  int64_t memory_bytes;
  const char* nvlink;
  double nvlink_rate;
  int pcie_generation;
  const AttainedShares& shares;
  const char* source;
};

constexpr DeviceDataSheet kGpus[] = {
    {"P100-16GB", 5.3, 10.6, 0, 0, 21.2, 0, 0, 732, 16 * kGibibyte, "nvlink1", 80, 3, kOlder,
     "NVIDIA Tesla P100 data sheet (SXM2), 2016"},
    {"V100-16GB", 7.8, 15.7, 0, 0, 125, 0, 0, 900, 16 * kGibibyte, "nvlink2", 150, 3, kOlder,
     "NVIDIA V100 data sheet (SXM2), 2020"},
    {"V100-32GB", 7.8, 15.7, 0, 0, 125, 0, 0, 900, 32 * kGibibyte, "nvlink2", 150, 3, kOlder,
     "NVIDIA V100 data sheet (SXM2), 2020"},
    {"T4", 0.25, 8.1, 0, 0, 65, 0, 130, 320, 16 * kGigabyte, "", 0, 3, kOlder,
     "NVIDIA T4 data sheet, 2019"},
    {"A10", 0.49, 31.2, 62.5, 125, 125, 0, 250, 600, 24 * kGigabyte, "", 0, 4, kOlder,
     "NVIDIA A10 data sheet, 2022"},
    {"L4", 0.49, 30.3, 60, 121, 121, 242.5, 242.5, 300, 24 * kGigabyte, "", 0, 4, kOlder,
     "NVIDIA L4 data sheet, 2023"},
    {"A100-40GB", 19.5, 19.5, 156, 312, 312, 0, 624, 1555, 40 * kGibibyte, "nvlink3", 300, 4,
     kOlder, "NVIDIA A100 data sheet (SXM4), 2021"},
    {"A100-80GB", 19.5, 19.5, 156, 312, 312, 0, 624, 2039, 80 * kGibibyte, "nvlink3", 300, 4,
     kOlder, "NVIDIA A100 data sheet (SXM4), 2021"},
    {"H100-80GB", 67, 67, 494.5, 989.5, 989.5, 1979, 1979, 3350, 80 * kGibibyte, "nvlink4", 450, 5,
     kHopper, "NVIDIA H100 data sheet (SXM5), 2023"},
    {"H200-141GB", 67, 67, 494.5, 989.5, 989.5, 1979, 1979, 4800, 141 * kGigabyte, "nvlink4", 450,
     5, kHopper, "NVIDIA H200 data sheet (SXM), 2024"},
    {"B200-180GB", 37, 75, 1100, 2250, 2250, 4500, 4500, 7700, 180 * kGigabyte, "nvlink5", 900, 5,
     kHopper, "NVIDIA Blackwell data sheet (HGX B200), 2025"},
};

// What a product of so many FLOPs attains of what large ones do: it falls off where the tiles no
// longer fill the device. An assumption, in this form for all of them.
constexpr RateCurve::Point kGpuShares[] = {
    {1e6, 0.002 / 0.82}, {1e7, 0.015 / 0.82}, {1e8, 0.11 / 0.82}, {1e9, 0.38 / 0.82},
    {1e10, 0.65 / 0.82}, {1e11, 0.78 / 0.82}, {1e12, 1}};
// The same of memory bandwidth, by bytes.
constexpr RateCurve::Point kGpuByteShares[] = {
    {1e5, 0.04 / 0.88}, {1e6, 0.3 / 0.88}, {1e7, 0.75 / 0.88}, {1e8, 1}};
// The tiles of a product are loaded before their arithmetic and stored after it, and a device runs
// few of them at once to hide that behind. An assumption, chosen on Narayanan et al. 2021, table 1
// (tools/bench/megatron_table): with 0 its smallest model came out too fast, with 1 all ten are
// about right.
constexpr double kGpuProductExposed = 1;

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
// what NCCL's tests attain with large messages. An assumption, which PublishedLink's source states.
constexpr LinkDataSheet kLinks[] = {
    {"nvlink1", 0.8 * 80 * kGiga, 6e-6, 4e-6,
     "NVIDIA P100: 4 links of 20 GB/s a direction; 80 % of it assumed"},
    {"nvlink2", 0.8 * 150 * kGiga, 6e-6, 4e-6,
     "NVIDIA V100: 6 links of 25 GB/s a direction; 80 % of it assumed"},
    {"nvlink3", 0.8 * 300 * kGiga, 6e-6, 4e-6,
     "NVIDIA A100: 12 links of 25 GB/s a direction; 80 % of it assumed"},
    {"nvlink4", 0.8 * 450 * kGiga, 6e-6, 4e-6,
     "NVIDIA H100: 18 links of 25 GB/s a direction; 80 % of it assumed"},
    {"nvlink5", 0.8 * 900 * kGiga, 6e-6, 4e-6,
     "NVIDIA B200: 18 links of 50 GB/s a direction; 80 % of it assumed"},
    {"pcie3", 0.85 * 15.75 * kGiga, 1e-5, 4e-6,
     "PCI Express 3.0, 16 lanes of 8 GT/s; 85 % of it assumed"},
    {"pcie4", 0.85 * 31.5 * kGiga, 1e-5, 4e-6,
     "PCI Express 4.0, 16 lanes of 16 GT/s; 85 % of it assumed"},
    {"pcie5", 0.85 * 63 * kGiga, 1e-5, 4e-6,
     "PCI Express 5.0, 16 lanes of 32 GT/s; 85 % of it assumed"},
    {"infiniband-edr", 0.92 * 12.5 * kGiga, 8e-6, 4e-6,
     "InfiniBand EDR, 100 Gbit/s; 92 % of it assumed"},
    {"infiniband-hdr", 0.92 * 25 * kGiga, 8e-6, 4e-6,
     "InfiniBand HDR, 200 Gbit/s; 92 % of it assumed"},
    {"infiniband-ndr", 0.92 * 50 * kGiga, 8e-6, 4e-6,
     "InfiniBand NDR, 400 Gbit/s; 92 % of it assumed"},
    {"ethernet-1g", 0.94 * 0.125 * kGiga, 1.2e-4, 2e-5, "1 Gbit/s Ethernet with TCP"},
    {"ethernet-10g", 0.94 * 1.25 * kGiga, 8e-5, 2e-5, "10 Gbit/s Ethernet with TCP"},
    {"ethernet-25g", 0.94 * 3.125 * kGiga, 7e-5, 2e-5, "25 Gbit/s Ethernet with TCP"},
    {"ethernet-100g", 0.5 * 12.5 * kGiga, 7e-5, 2e-5,
     "100 Gbit/s Ethernet with TCP, which one stream fills by half"},
    {"loopback", 2.5 * kGiga, 7e-5, 2e-5, "assumed: gRPC streams on a machine of its own"},
};

template <typename Points>
RateCurve Scaled(const Points& shares, double peak) {
  RateCurve curve;
  for (const RateCurve::Point& point : shares) {
    curve.points.push_back({point.work, point.per_second * peak});
  }
  return curve;
}

GpuFigures FiguresOf(const DeviceDataSheet& sheet) {
  GpuFigures gpu;
  gpu.name = sheet.name;
  gpu.float64 = sheet.float64 * kTera;
  gpu.float32 = sheet.float32 * kTera;
  gpu.tf32 = sheet.tf32 * kTera;
  gpu.bfloat16 = sheet.bfloat16 * kTera;
  gpu.float16 = sheet.float16 * kTera;
  gpu.float8 = sheet.float8 * kTera;
  gpu.int8 = sheet.int8 * kTera;
  gpu.bytes_per_second = sheet.memory_rate * kGiga;
  gpu.memory_bytes = sheet.memory_bytes;
  gpu.nvlink = sheet.nvlink;
  gpu.nvlink_bytes_per_second = sheet.nvlink_rate * kGiga;
  gpu.pcie_generation = sheet.pcie_generation;
  gpu.source = sheet.source;
  gpu.product_share = sheet.shares.product;
  gpu.float32_share = sheet.shares.float32;
  gpu.memory_share = sheet.shares.memory;
  gpu.share_source = sheet.shares.source;
  return gpu;
}

DeviceProfile ProfileOf(const GpuFigures& gpu) {
  DeviceProfile device;
  device.name = gpu.name;
  device.source = absl::StrCat(gpu.source, "; the share attained by size is assumed");
  device.contraction[DType::kFloat32] = Scaled(kGpuShares, gpu.float32_share * gpu.float32);
  for (const auto& [dtype, peak] : {std::pair(DType::kFloat16, gpu.float16),
                                    {DType::kBfloat16, gpu.bfloat16},
                                    {DType::kFloat64, gpu.float64}}) {
    if (peak > 0) device.contraction[dtype] = Scaled(kGpuShares, gpu.product_share * peak);
  }
  device.elementwise = Scaled(kGpuByteShares, gpu.memory_share * gpu.bytes_per_second);
  device.movement = device.elementwise;
  device.elementwise_flops = 0.5 * gpu.float32;
  device.product_exposed = kGpuProductExposed;
  device.node_seconds = kLaunchSeconds;
  device.wake_seconds = 3e-5;
  device.step_seconds = 1e-4;
  device.memory_bytes = gpu.memory_bytes;
  for (const LinkDataSheet& link : kLinks) {
    if (link.name != absl::StrCat("pcie", gpu.pcie_generation)) continue;
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

absl::StatusOr<GpuFigures> PublishedGpu(const std::string& model) {
  const std::string wanted = absl::AsciiStrToLower(model);
  const DeviceDataSheet* found = nullptr;
  int relatives = 0;
  for (const DeviceDataSheet& sheet : kGpus) {
    const std::string name = absl::AsciiStrToLower(sheet.name);
    if (name == wanted) return FiguresOf(sheet);
    if (!absl::StartsWith(name, wanted + "-")) continue;
    found = &sheet;
    ++relatives;
  }
  if (relatives == 1) return FiguresOf(*found);
  return UnknownName("device model", model, PublishedDeviceNames());
}

absl::StatusOr<DeviceProfile> PublishedDevice(const std::string& model) {
  const absl::StatusOr<GpuFigures> gpu = PublishedGpu(model);
  if (!gpu.ok()) return gpu.status();
  return ProfileOf(*gpu);
}

DeviceProfile CommonGpu() {
  DeviceProfile device = ProfileOf(FiguresOf(kGpus[0]));
  device.source = absl::StrCat("assumed: a ", device.name, ", the oldest card known");
  device.name = "gpu";
  return device;
}

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
