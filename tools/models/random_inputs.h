// Random values for the inputs of a model.
#ifndef WEFT_TOOLS_MODELS_RANDOM_INPUTS_H_
#define WEFT_TOOLS_MODELS_RANDOM_INPUTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "tensor/value.h"

namespace weft {

// Sizes of a model's symbolic dimensions, by name.
using DimensionSizes = std::map<std::string, int64_t>;

// "N=4,length=10" and the like, any number; sizes from 0 on. InvalidArgument for an entry that is
// none, for a name twice, and for a name that no input of `graph` has.
absl::StatusOr<DimensionSizes> ParseDimensionSizes(const std::vector<std::string>& texts,
                                                   const Graph& graph);

// A tensor for `input`: its shape with the symbols replaced by `sizes`, and by 1 where these say
// nothing. Floats are normally distributed with variance 1, whole numbers 0 to 9 (of 8 bits and
// fewer: all there are), bools both, strings four letters. The elements depend on the seed, the
// input's name and their place alone. InvalidArgument for what is no tensor of a known rank and
// type, naming the input.
absl::StatusOr<Value> RandomInput(const ValueDef& input, const DimensionSizes& sizes,
                                  uint64_t seed);

}  // namespace weft

#endif  // WEFT_TOOLS_MODELS_RANDOM_INPUTS_H_
