// What the figures of a prediction rest on where nobody has measured.
#ifndef WEFT_PLACEMENT_COST_ESTIMATES_H_
#define WEFT_PLACEMENT_COST_ESTIMATES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "placement/cost/cluster_profile.h"

namespace weft {

// Where an estimate comes from.
enum class EstimateBasis : uint8_t {
  kPublished,  // a data sheet's figure
  kGiven,      // the cluster file says it
  kAssumed,    // a figure of ours, for want of one
};
const char* EstimateBasisName(EstimateBasis basis);  // "published"

// One figure, or some that come from one source.
struct Estimate {
  std::string what;  // "H100-80GB: 989.5 TFLOP/s in bfloat16, ..."
  EstimateBasis basis = EstimateBasis::kAssumed;
  std::string source;  // "NVIDIA H100 data sheet (SXM5), 2023"
  friend bool operator==(const Estimate&, const Estimate&) = default;
};

// All that the costs of these workers (indices of the profile) and of the links among them rest on
// besides measurements: each once, devices first, in the order of the profile. Empty where a
// calibration has measured everything.
std::vector<Estimate> EstimatesOf(const ClusterProfile& profile, const std::vector<int>& workers);

// What the figures of messages and collectives that go through the hosts of devices rest on
// (CostModel::Link), for these workers: empty where none has a device with memory of its own.
std::vector<Estimate> HostPathEstimates(const ClusterProfile& profile,
                                        const std::vector<int>& workers);

}  // namespace weft

#endif  // WEFT_PLACEMENT_COST_ESTIMATES_H_
