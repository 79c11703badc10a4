#include "placement/cost/estimates.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "placement/cost/published_specs.h"

namespace weft {
namespace {

// LinkProfile::source of values that the cluster file gives.
constexpr char kClusterSpec[] = "the cluster spec";

class EstimateList {
 public:
  void AddDevice(const DeviceProfile& device) {
    if (device.source == kMeasuredSource) return;
    const absl::StatusOr<GpuFigures> gpu = PublishedGpu(device.name);
    if (!gpu.ok()) {
      Add(absl::StrCat(device.name, ": rates of products and memory"), EstimateBasis::kAssumed,
          device.source);
      return;
    }
    Add(absl::StrCat(gpu->name, ": ", Peaks(*gpu)), EstimateBasis::kPublished, gpu->source);
    Add(absl::StrFormat(
            "%s: of these peaks large products attain %.0f %% (float32: %.0f %%), copies "
            "%.0f %%",
            gpu->name, 100 * gpu->product_share, 100 * gpu->float32_share, 100 * gpu->memory_share),
        EstimateBasis::kAssumed, gpu->share_source);
    Add("small nodes attain less of a GPU, by their size", EstimateBasis::kAssumed,
        "one curve for all cards");
    Add(absl::StrFormat("a GPU takes %.0f us for a kernel besides its work, %.0f us for a step",
                        1e6 * device.node_seconds, 1e6 * device.step_seconds),
        EstimateBasis::kAssumed, "one figure for all cards");
  }

  void AddLink(const LinkProfile& link, bool within_host) {
    if (link.source == kMeasuredSource) return;
    const bool is_given = link.source == kClusterSpec;
    const bool is_assumed = link.source.rfind("assumed", 0) == 0;
    Add(absl::StrFormat("messages %s: %.3g GB/s and %.3g us",
                        within_host ? "within a host" : "between hosts",
                        1e-9 * link.bytes_per_second, 1e6 * link.latency_seconds),
        is_given     ? EstimateBasis::kGiven
        : is_assumed ? EstimateBasis::kAssumed
                     : EstimateBasis::kPublished,
        link.source);
  }

  void AddHostPaths(const ClusterProfile& profile, const std::vector<int>& workers) {
    std::set<int> hosts;
    bool is_needed = false;  // no measurement has it all
    for (const int worker : workers) {
      const DeviceProfile& device = profile.device(worker);
      hosts.insert(profile.host_of[worker]);
      if (!(device.host_bytes_per_second > 0)) continue;
      is_needed = is_needed || !profile.link(worker, worker).through_host;
      if (device.source == kMeasuredSource) continue;
      Add(absl::StrFormat("%s: copies to the host and back at %.3g GB/s and %.0f us", device.name,
                          1e-9 * device.host_bytes_per_second, 1e6 * device.host_copy_seconds),
          EstimateBasis::kAssumed, "PCI Express of the card's generation");
    }
    if (!is_needed) return;
    const LinkProfile loopback = *PublishedLink("loopback");
    Add(absl::StrFormat("through a host: %.3g GB/s and %.0f us between its processes",
                        1e-9 * loopback.bytes_per_second, 1e6 * loopback.latency_seconds),
        EstimateBasis::kAssumed, loopback.source);
    Add("through hosts collectives add on a thread of a common processor", EstimateBasis::kAssumed,
        "one figure for all processors");
    if (hosts.size() < 2) return;
    const LinkProfile stream = *PublishedLink("ethernet-100g");
    Add(absl::StrFormat("through hosts: at most %.3g GB/s from one to another",
                        1e-9 * stream.bytes_per_second),
        EstimateBasis::kAssumed, stream.source);
  }

  std::vector<Estimate> Take() { return std::move(estimates_); }

 private:
  static std::string Peaks(const GpuFigures& gpu) {
    std::vector<std::string> parts;
    for (const auto& [type, peak] : {std::pair("bfloat16", gpu.bfloat16),
                                     {"float16", gpu.float16},
                                     {"float32", gpu.float32}}) {
      if (peak > 0) parts.push_back(absl::StrFormat("%g TFLOP/s in %s", 1e-12 * peak, type));
    }
    parts.push_back(absl::StrFormat("%g TB/s of memory", 1e-12 * gpu.bytes_per_second));
    return absl::StrJoin(parts, ", ");
  }

  void Add(std::string what, EstimateBasis basis, std::string source) {
    Estimate estimate = {std::move(what), basis, std::move(source)};
    if (std::find(estimates_.begin(), estimates_.end(), estimate) != estimates_.end()) return;
    estimates_.push_back(std::move(estimate));
  }

  std::vector<Estimate> estimates_;
};

}  // namespace

const char* EstimateBasisName(EstimateBasis basis) {
  constexpr const char* kNames[] = {"published", "given", "assumed"};
  return kNames[static_cast<int>(basis)];
}

std::vector<Estimate> EstimatesOf(const ClusterProfile& profile, const std::vector<int>& workers) {
  EstimateList list;
  std::set<int> devices;
  std::map<int, int> first_on;  // worker by host
  std::set<int> shared;         // hosts with two workers or more
  for (const int worker : workers) {
    devices.insert(profile.device_of[worker]);
    const int host = profile.host_of[worker];
    if (!first_on.try_emplace(host, worker).second) shared.insert(host);
  }
  for (const int device : devices) list.AddDevice(profile.devices[device]);
  for (const int host : shared) {
    list.AddLink(profile.link(first_on.at(host), first_on.at(host)), /*within_host=*/true);
  }
  for (const auto& [from, sender] : first_on) {
    for (const auto& [to, receiver] : first_on) {
      if (from != to) list.AddLink(profile.link(sender, receiver), /*within_host=*/false);
    }
  }
  return list.Take();
}

std::vector<Estimate> HostPathEstimates(const ClusterProfile& profile,
                                        const std::vector<int>& workers) {
  const bool any_device = std::any_of(workers.begin(), workers.end(), [&](int worker) {
    return profile.device(worker).host_bytes_per_second > 0;
  });
  EstimateList list;
  if (any_device) list.AddHostPaths(profile, workers);
  return list.Take();
}

}  // namespace weft
