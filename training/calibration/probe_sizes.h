// How large the ops are that calibrate a device.
#ifndef WEFT_TRAINING_CALIBRATION_PROBE_SIZES_H_
#define WEFT_TRAINING_CALIBRATION_PROBE_SIZES_H_

#include <cstdint>
#include <vector>

#include "tensor/dtype.h"

namespace weft {

// Square products of one element type.
struct ProbedProducts {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> sides;  // rising
};

// What one program has a node of each for.
struct ProbeSizes {
  std::vector<ProbedProducts> products;
  std::vector<int64_t> elements;     // that are added and transposed; rising multiples of 16
  std::vector<int64_t> activated;    // elements of activations
  bool has_random_operands = false;  // of products; else zeros
};

// Of a device in the host's memory: all in one program.
ProbeSizes ProbeSizesOfHost();

// Of a device with memory of its own: programs from small to large, one after the other, as far as
// time and memory allow. Their products have types of their own, as tensor cores have rates of
// their own: those of float64 are a quarter as wide, for many cards have few units for them. Where
// clocks follow the power that a card takes, zeros are multiplied faster than numbers: so large
// operands are random.
std::vector<ProbeSizes> ProbeSizesOfCard();
// From one of them to the next the arithmetic of products grows by this factor, all else by less.
inline constexpr double kProbeGrowth = 64;

// That operands and results of a program take of the device. All results stay to its end.
int64_t ProbeBytes(const ProbeSizes& sizes);

}  // namespace weft

#endif  // WEFT_TRAINING_CALIBRATION_PROBE_SIZES_H_
