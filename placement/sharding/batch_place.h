// BatchPlace: where the samples of the batch are in a value, followed from operand to operand by
// the factors of index notation. Internal to placement/sharding.
#ifndef WEFT_PLACEMENT_SHARDING_BATCH_PLACE_H_
#define WEFT_PLACEMENT_SHARDING_BATCH_PLACE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "graph/sharding.h"
#include "tensor/tensor.h"

namespace weft {

// A value.
struct BatchPlace {
  enum class Kind : uint8_t {
    kNone,   // it does not depend on the batch
    kSplit,  // axis `axis` is seen as blocks x samples x rest
    kSum,    // a sum of one term per sample
    kMean,   // the mean of one term per sample
    kCount,  // a constant in proportion to the number of samples
    kShare,  // a constant in inverse proportion to it
    kOther,  // it depends on the number of samples in another way
    kLost,   // it comes from a node that mixes samples
  };
  Kind kind = Kind::kNone;
  int axis = 0;
  int64_t blocks = 1;
  // kSplit: all elements along the axis are equal, so that it may be split anywhere.
  bool is_uniform = false;
  // kSplit, above 0: integers, each at least the number of its sample in the batch times this, and
  // less than that of the next one.
  int64_t stride = 0;
  // With a stride: that holds only of the first element along the last axis.
  bool only_first = false;
  // kSum, kMean: the name of the node that reduces.
  std::string maker = {};

  static BatchPlace Split(int axis, int64_t blocks = 1) {
    BatchPlace place;
    place.kind = Kind::kSplit;
    place.axis = axis;
    place.blocks = blocks;
    return place;
  }
  static BatchPlace Of(Kind kind) {
    BatchPlace place;
    place.kind = kind;
    return place;
  }
  bool is(Kind other) const { return kind == other; }
};

// The factor that the samples are part of, which is seen as blocks x samples x rest.
struct BatchFactor {
  int factor = 0;
  int64_t blocks = 1;
};

// The factor that holds the samples of an operand. Nullopt where they are cut over several factors.
// REQUIRES: place.kind is kSplit.
std::optional<BatchFactor> FactorOfBatch(const FactorRule& rule, const OperandFactors& operand,
                                         const BatchPlace& place, int64_t samples);

// Where these samples are in another operand: kNone where it does not have the factor, nullopt
// where it has it several times.
std::optional<BatchPlace> PlaceOfFactor(const FactorRule& rule, const OperandFactors& operand,
                                        const BatchFactor& batch);

// Where these samples are in the same elements under another shape, row-major; kLost where no axis
// holds them.
BatchPlace PlaceUnderShape(const Shape& from, const BatchPlace& place, const Shape& to,
                           int64_t samples);

// The place of a constant that is computed from shapes, from what it is for two numbers of samples.
BatchPlace PlaceOfConstant(const Tensor& a, int64_t samples_a, const Tensor& b, int64_t samples_b);

// The axis of `a` whose size is in proportion to the number of samples, seen as samples x rest; the
// shapes are those of one value for two numbers of samples. kNone where all sizes are equal, kLost
// where there is no such axis, or several.
BatchPlace PlaceByShape(const Shape& a, int64_t samples_a, const Shape& b, int64_t samples_b);

}  // namespace weft

#endif  // WEFT_PLACEMENT_SHARDING_BATCH_PLACE_H_
