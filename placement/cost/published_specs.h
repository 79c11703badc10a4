// Published specs of common devices and links, for clusters that nobody has measured.
#ifndef WEFT_PLACEMENT_COST_PUBLISHED_SPECS_H_
#define WEFT_PLACEMENT_COST_PUBLISHED_SPECS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "placement/cost/device_profile.h"
#include "tensor/device.h"

namespace weft {

// What is published of a GPU, and what is assumed or was measured of how much of it programs
// attain.
struct GpuFigures {
  std::string name;  // "H100-80GB"
  // Peaks of products in operations per second, without structured sparsity ("dense"); 0: the card
  // has none, or the data sheet says none. float32 is that of the plain cores, which compute
  // products of float32 unless TF32 is allowed.
  double float64 = 0;
  double float32 = 0;
  double tf32 = 0;
  double bfloat16 = 0;
  double float16 = 0;
  double float8 = 0;
  double int8 = 0;
  double bytes_per_second = 0;  // of the card's memory
  int64_t memory_bytes = 0;
  std::string nvlink;                  // the kind of PublishedLink, "nvlink4"; empty: none
  double nvlink_bytes_per_second = 0;  // the peak of a direction, all links of the card together
  int pcie_generation = 0;             // of 16 lanes; the kind of PublishedLink is "pcie4"
  std::string source;                  // of all above: the data sheet, by name and year
  // Of the peaks, what the largest products attain on tensor cores and in float32, and of the
  // memory's bandwidth, what large copies do.
  double product_share = 0;
  double float32_share = 0;
  double memory_share = 0;
  std::string share_source;  // of these three: who measured them where, or "assumed"
};

// Assumed of all cards: what a kernel takes besides its work, and what the CUDA context with the
// code of the kernels and the handles of libraries takes of the card's memory.
inline constexpr double kLaunchSeconds = 4e-6;
inline constexpr int64_t kContextBytes = int64_t{512} << 20;

// The figures of a GPU by its name, upper or lower case; its first part does where there is one
// such card: "H100". InvalidArgument with the names there are.
absl::StatusOr<GpuFigures> PublishedGpu(const std::string& model);

// A device by the name that WorkerSpec::model gives it, as PublishedGpu takes it. Its rates are the
// peaks times the share of them that a node of a size attains: an assumption for want of a
// measurement, stated in the profile's source. InvalidArgument with the names there are.
absl::StatusOr<DeviceProfile> PublishedDevice(const std::string& model);
// A processor of which nothing is known, `threads` of its threads.
DeviceProfile CommonCpu(int threads);
// A GPU of which nothing is known, "gpu": it has the figures of the oldest card published.
DeviceProfile CommonGpu();

// A link by the name that LinkSpec::kind gives it: "nvlink3", "infiniband-hdr", "ethernet-25g".
absl::StatusOr<LinkProfile> PublishedLink(const std::string& kind);

// Names, in the order of the tables.
std::vector<std::string> PublishedDeviceNames();
std::vector<std::string> PublishedLinkNames();

}  // namespace weft

#endif  // WEFT_PLACEMENT_COST_PUBLISHED_SPECS_H_
