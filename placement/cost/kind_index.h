// KindIndex: what the measured ops of a device say of ops of their kind in other sizes.
//
//   seconds = roofline(op) * factor,  factor = measured / roofline of the nearest measured op
//   roofline(op) = node overhead + max(FLOPs / best rate, bytes / rate of main memory)
//
// The rate curves are not asked: they fall towards small work as small square products do, and the
// ops of a smaller batch do not. Between a smaller and a larger op that were measured, the factor
// is their geometric mean, weighted by nearness; beyond them it is the nearest one's, however far.
// Internal to placement/cost/.
#ifndef WEFT_PLACEMENT_COST_KIND_INDEX_H_
#define WEFT_PLACEMENT_COST_KIND_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "graph/op_schema.h"
#include "placement/cost/cluster_profile.h"

namespace weft {

// Immutable and thread-safe.
class KindIndex {
 public:
  // Ops without a kind, without work or without time are left out.
  explicit KindIndex(const DeviceProfile& device);

  // Nullopt when nothing of the node's kind was measured with so many threads. `cost` is CostOf.
  std::optional<double> Seconds(const NodeView& node, const Cost& cost, int threads,
                                int in_flight) const;

 private:
  // The measured ops of one kind and number of threads, by `sizes`.
  struct Kind {
    double flops_per_second = 0;
    size_t rank = 0;               // dimensions of all operands of one op, and one more:
                                   // micro-batches in flight
    std::vector<double> sizes;     // sum of the logarithms of all dimensions
    std::vector<double> log_dims;  // `rank` of each op
    std::vector<double> log_factors;
  };
  struct Nearest {
    double distance;
    double log_factor;
  };

  void Add(const DeviceProfile& device, const MeasuredOp& op, const OpMeasurement& measured);
  static void Sort(Kind& kind);
  double Roofline(const Kind& kind, const Cost& cost) const;
  static double LogFactor(const Kind& kind, std::span<const double> log_dims);

  double node_seconds_;
  double bytes_per_second_;
  absl::flat_hash_map<uint64_t, Kind> kinds_;
};

}  // namespace weft

#endif  // WEFT_PLACEMENT_COST_KIND_INDEX_H_
