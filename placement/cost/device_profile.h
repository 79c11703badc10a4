// What one kind of worker, and one link, does, in seconds. Pure data.
#ifndef WEFT_PLACEMENT_COST_DEVICE_PROFILE_H_
#define WEFT_PLACEMENT_COST_DEVICE_PROFILE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace weft {

// What limits an op, told from its schema's cost and never from its name.
enum class OpFamily : uint8_t {
  kMovement,     // no arithmetic: copies, transposes, gathers
  kElementwise,  // some arithmetic per element that it touches: sums, activations, updates
  kContraction,  // much: products, convolutions
};
inline constexpr int kOpFamilies = 3;
const char* OpFamilyName(OpFamily family);  // "contraction"

// A rate by the amount of work in one node: small ones run slower. Between points it is
// interpolated in the logarithm of both, beyond them it is that of the nearest point.
struct RateCurve {
  struct Point {
    double work = 0;  // bytes for movement and elementwise ops, FLOPs for contractions
    double per_second = 0;
    friend bool operator==(const Point&, const Point&) = default;
  };
  std::vector<Point> points;  // by work, none twice
  // 0 without points.
  double At(double work) const;
  friend bool operator==(const RateCurve&, const RateCurve&) = default;
};

// What an op is and how much of it: WorkOf (placement/cost/op_key.h).
struct OpWork {
  uint64_t kind = 0;              // KindKey; 0 = not known
  DType dtype = DType::kInvalid;  // that it computes in
  double flops = 0;
  double bytes = 0;
  std::vector<int64_t> dims = {};  // of all inputs, then of all outputs
  friend bool operator==(const OpWork&, const OpWork&) = default;
};

// One measured op. `key` is that of OpKey (placement/cost/op_key.h). What the backward pass reads
// is in the caches right after its forward pass, and no more where other micro-batches ran in
// between: so an op is measured with so many micro-batches in flight, as a worker's schedule has
// them.
struct OpMeasurement {
  double seconds = 0;     // of one call
  std::string text = {};  // "MatMul float32[64,784] float32[784,10]", for people
  OpWork work = {};       // without a kind it says nothing of ops in other sizes
  friend bool operator==(const OpMeasurement&, const OpMeasurement&) = default;
};
// The measured time of one node.
struct MeasuredOp {
  uint64_t key = 0;
  int threads = 1;
  int in_flight = 1;  // micro-batches whose activations the worker holds at once
  friend bool operator==(const MeasuredOp&, const MeasuredOp&) = default;
  friend auto operator<=>(const MeasuredOp&, const MeasuredOp&) = default;
};

// DeviceProfile::source of a device that a calibration has measured.
inline constexpr char kMeasuredSource[] = "measured";

// One kind of worker. Rates are what a worker gets while the other workers of its host work too.
struct DeviceProfile {
  std::string name;    // "A100-80GB", "worker:0": unique in its profile
  std::string source;  // where the values come from: kMeasuredSource, or a data sheet
  int threads = 1;     // with which the rates hold
  // Of contractions, in FLOP/s, by element type; types that are not here run as float32 does.
  std::map<DType, RateCurve> contraction;
  // In bytes/s, read and written.
  RateCurve elementwise;
  RateCurve movement;
  // FLOP/s of elementwise arithmetic, for ops that do much of it per byte; 0 = never the limit.
  double elementwise_flops = 0;
  // Of the shorter of a product's arithmetic and its memory traffic, what the longer one does not
  // hide: 0 is the roofline model, 1 takes one after the other.
  double product_exposed = 0;
  double node_seconds = 0;  // per node, whatever its size
  double wake_seconds = 0;  // until a sleeping thread runs
  double step_seconds = 0;  // per step, besides its nodes: inputs, reports, bookkeeping
  // Of samples that a step reads, besides; 0 = they cost nothing.
  double input_bytes_per_second = 0;
  int64_t memory_bytes = 0;  // 0 = not known
  // Exact measurements in a step's own surroundings.
  std::map<MeasuredOp, OpMeasurement> ops;
  // Copies between its memory and the host's, one direction at a time: rate, and seconds of each
  // besides. Where both directions were measured: bytes over seconds of as many each way, and the
  // mean. 0 = it computes in the host's memory.
  double host_bytes_per_second = 0;
  double host_copy_seconds = 0;
  // Of large copies within its memory, one after the other: bytes read and written. 0 = not
  // measured. No cost follows from it: `movement` has what nodes attain.
  double copy_bytes_per_second = 0;
  // Of a GPU that was measured: "NVIDIA L4, compute capability 8.9", and the version of its driver.
  // Empty: not known.
  std::string card = {};
  std::string driver = {};

  // Of contractions of that type; that of float32 where it has none, no points where that has none.
  const RateCurve& ContractionRate(DType dtype) const;
  friend bool operator==(const DeviceProfile&, const DeviceProfile&) = default;
};

// One direction between two workers of two hosts, or of one.
struct LinkProfile {
  std::string source;           // where the values come from
  double latency_seconds = 0;   // from Send to the end of Receive, of an empty message
  double bytes_per_second = 0;  // of one stream of messages, the others silent
  // Of each of both directions while both are busy, as in collectives; 0 = the same.
  double exchange_bytes_per_second = 0;
  // Of the time that a collective takes beside computing, what computing does not get: 0 where
  // others move the bytes, 1 where the same cores do.
  double contention = 0;
  // What a thread spends on a message, whatever its size, in Send and in Receive.
  double send_seconds = 0;
  double receive_seconds = 0;
  // So many workers of a host send at this rate at once (network cards per host); more share it.
  int rails = 1;
  // Measured where a device with memory of its own was at one end, and messages went through its
  // host: its copies are in the figures.
  bool through_host = false;
  friend bool operator==(const LinkProfile&, const LinkProfile&) = default;
};

}  // namespace weft

#endif  // WEFT_PLACEMENT_COST_DEVICE_PROFILE_H_
