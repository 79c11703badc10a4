// What the .cu files of this folder launch. A Find function gives null where there is no launch for
// a type; a launch returns 0 or CUDA's error number. Pointers are to memory of the queue's device.
#ifndef WEFT_OPS_KERNELS_CUDA_RANDOM_RANDOM_CALLS_H_
#define WEFT_OPS_KERNELS_CUDA_RANDOM_RANDOM_CALLS_H_

#include <cstdint>

#include "ops/kernels/cuda/blocks/broadcast.h"
#include "ops/kernels/cuda/blocks/fault.h"
#include "ops/kernels/cuda/blocks/philox.h"
#include "ops/kernels/cuda/language/launch_grid.h"
#include "tensor/dtype.h"

namespace weft::cuda {

// The place of each element in the whole tensor, which names its random number.
struct PlaceMap {
  int64_t first = 0;              // of element 0
  BroadcastMap<1, int64_t> wide;  // its distance from there, of element i
  BroadcastMap<1> narrow;         // the same, if fits_narrow
  bool fits_narrow = false;
  // Elements 4 i to 4 i + 4 have places that follow each other.
  bool has_fours = false;
};

// What a step's numbers are drawn from.
struct StepKey {
  PhiloxKey key;                  // of the node; of the step, where `step` is null
  const int64_t* step = nullptr;  // the step's number, in memory of the device
};

// ---- Tensors of random numbers.

enum class Distribution : uint8_t { kUniform, kNormal };

struct RandomCall {
  LaunchQueue queue;
  StepKey key;
  PlaceMap places;
  void* y = nullptr;
  int64_t count = 0;
  float a = 0;  // low, or the mean
  float b = 1;  // high, or the standard deviation
};
using RandomLaunch = int (*)(const RandomCall& call);
RandomLaunch FindRandom(Distribution distribution, DType dtype);

// y[i] = one if the number of i is below p[i], else 0.
struct BernoulliCall {
  LaunchQueue queue;
  StepKey key;
  PlaceMap places;
  const void* p = nullptr;
  void* y = nullptr;
  int64_t count = 0;
  uint64_t one = 1;  // the bits of y's 1
};
using BernoulliLaunch = int (*)(const BernoulliCall& call);
BernoulliLaunch FindBernoulli(DType probabilities, int output_bits);

// Draws of a row.
inline constexpr int64_t kDrawLimit = (int64_t{1} << 31) - 1;

// y[i] = a class of row i / samples of the logits, drawn in proportion to e^logit.
struct MultinomialCall {
  LaunchQueue queue;
  StepKey key;
  int64_t first_place = 0;
  const void* logits = nullptr;  // [rows, classes]
  void* y = nullptr;             // [rows, samples]
  int64_t count = 0;             // rows * samples
  int64_t samples = 1;           // at most kDrawLimit
  int64_t classes = 1;
};
using MultinomialLaunch = int (*)(const MultinomialCall& call);
MultinomialLaunch FindMultinomial(DType logits, DType output);

// ---- Dropout.

// The operands ratio and training_mode, as the device reads them.
struct DropoutMode {
  const void* ratio = nullptr;        // one element of ratio_type; null: 0.5
  const uint8_t* training = nullptr;  // null: not training
  DType ratio_type = DType::kFloat32;
  FaultReport report;  // of a ratio outside of [0, 1)
};

inline constexpr int kMaxDropoutRank = 16;

// The numbers of ONNX's reference, a Mersenne twister's: as bytes of what is kept.
struct TwisterCall {
  LaunchQueue queue;
  const int64_t* step = nullptr;  // in memory of the device: does nothing unless it is 0
  uint32_t seed = 0;
  DropoutMode mode;
  uint8_t* kept = nullptr;
  int64_t first_place = 0;  // of the global tensor's element 0
  int rank = 0;
  int64_t global[kMaxDropoutRank] = {};
  int64_t local[kMaxDropoutRank] = {};
  int64_t offset[kMaxDropoutRank] = {};
  int64_t count = 0;  // elements of the global tensor
};
int LaunchTwister(const TwisterCall& call);

struct DropoutCall {
  LaunchQueue queue;
  StepKey key;
  PlaceMap places;
  DropoutMode mode;
  const void* x = nullptr;
  void* y = nullptr;
  uint8_t* mask = nullptr;  // null: not wanted
  // Of LaunchTwister, for step 0; null: what the key draws, as in all other steps.
  const uint8_t* kept = nullptr;
  int64_t count = 0;
};
using DropoutLaunch = int (*)(const DropoutCall& call);
DropoutLaunch FindDropout(DType dtype);

struct DropoutGradCall {
  LaunchQueue queue;
  DropoutMode mode;
  const void* dy = nullptr;
  const uint8_t* mask = nullptr;
  void* dx = nullptr;
  int64_t count = 0;
};
using DropoutGradLaunch = int (*)(const DropoutGradCall& call);
DropoutGradLaunch FindDropoutGrad(DType dtype);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_RANDOM_RANDOM_CALLS_H_
