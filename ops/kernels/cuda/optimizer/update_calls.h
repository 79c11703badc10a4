// Launches of update_body.h and of the small operators around updates. Each returns CUDA's error
// number.
#ifndef WEFT_OPS_KERNELS_CUDA_OPTIMIZER_UPDATE_CALLS_H_
#define WEFT_OPS_KERNELS_CUDA_OPTIMIZER_UPDATE_CALLS_H_

#include <cstdint>

#include "ops/kernels/cuda/language/launch_grid.h"
#include "tensor/device_fault.h"
#include "tensor/dtype.h"

namespace weft::cuda {

enum class UpdateKind : uint8_t {
  kSgd,
  kAdam,
  kLion,
  kRmsprop,
  kAdadelta,
  kAdagrad,
  kRadam,
  kLamb,  // LambDirection
  kEma,
};

inline constexpr int kMaxStates = 4;

// The attributes of all kinds.
struct UpdateAttributes {
  double weight_decay = 0;
  double beta1 = 0;  // rho, alpha and decay of those that have one
  double beta2 = 0;
  double epsilon = 0;
  double momentum = 0;
  double dampening = 0;
  double rate_decay = 0;
  bool nesterov = false;
  bool decoupled = false;
};

// The update of one parameter. Outputs may be the memory of the inputs that they replace.
struct UpdateItem {
  int64_t count = 0;  // elements
  const void* w = nullptr;
  const void* g = nullptr;
  void* new_w = nullptr;
  // In the order of the op's inputs; null where a state is absent.
  const void* state[kMaxStates] = {};
  void* new_state[kMaxStates] = {};
  const void* rate = nullptr;     // one number; null: none
  const void* scale = nullptr;    // null: 1
  const int64_t* step = nullptr;  // 1 in the first update; null: the op does not read it
  const char* source = nullptr;   // DeviceFault::source of a wrong step
};

// What many updates have in common.
struct UpdateCall {
  UpdateKind kind = UpdateKind::kSgd;
  DType dtype = DType::kFloat32;  // or float64
  UpdateAttributes attributes;
  bool has_state[kMaxStates] = {};
  DType rate_dtype = DType::kFloat32;
  DType scale_dtype = DType::kFloat32;
  DeviceFault* fault = nullptr;
};
// All of them, in as few launches as their tables fit into. None makes what another one reads.
int LaunchUpdates(LaunchQueue queue, const UpdateCall& call, const UpdateItem* items, int count);

// y = x s, s one element. Floats.
struct ScaleItem {
  const void* x = nullptr;
  const void* s = nullptr;
  void* y = nullptr;  // may be x
  int64_t count = 0;
};
// All of them, as LaunchUpdates.
int LaunchScales(LaunchQueue queue, DType dtype, const ScaleItem* items, int count);

// y = ((x0 + x1) + x2) + ..., any number; y may be one of them. 16-bit floats are added in float32.
inline constexpr int kMaxAddends = 256;
struct AddCall {
  int addends = 0;
  const void* x[kMaxAddends] = {};
  void* y = nullptr;
  DType dtype = DType::kFloat32;
  int64_t count = 0;
};
int LaunchAdd(LaunchQueue queue, const AddCall& call);

// Of the norms' squares; float32 or float64.
int LaunchTrustRatio(LaunchQueue queue, DType dtype, const void* w, const void* u, void* ratio,
                     int64_t count, double coefficient, double weight_decay, double epsilon);

// A RateSchedule (ops/defs/optimizer/rate_schedule.h) in numbers.
enum class RateCurve : uint8_t {
  kConstant,
  kStep,
  kExponential,
  kLinear,
  kCosine,
  kPolynomial,
  kOneCycle,
};
struct RateCall {
  RateCurve curve = RateCurve::kConstant;
  int64_t warmup = 0;
  int64_t total = 0;
  int64_t every = 1;
  double gamma = 1;
  double power = 1;
  double end = 0;
  const int64_t* step = nullptr;  // 1 in the first
  float* factor = nullptr;
  int64_t count = 0;
};
int LaunchRateFactor(LaunchQueue queue, const RateCall& call);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_OPTIMIZER_UPDATE_CALLS_H_
