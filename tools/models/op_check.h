// Checks that a custom op's kernel does what its declaration promises.
#ifndef WEFT_TOOLS_MODELS_OP_CHECK_H_
#define WEFT_TOOLS_MODELS_OP_CHECK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "graph/attribute.h"
#include "ops/custom_op.h"
#include "tensor/shape.h"

namespace weft {

// What `op check` tries.
struct OpCheckOptions {
  uint64_t seed = 1;
  int cases = 4;  // of random shapes
  // Of every case; an op with a required attribute needs it.
  Attributes attributes;
  // Shapes of the inputs, in place of random ones that fit the op's sharding notation.
  std::vector<Shape> input_shapes;
};

// One thing that was looked at.
struct OpCheckResult {
  std::string check;  // "shapes", "memory", "loops", "gradient", "sharding"
  std::string what;   // "32 loops in other orders", or why it was not looked at
  bool skipped = false;
  absl::Status status;  // not OK: the finding
};

// Runs on the CPU, on inputs of the first floating type that every input allows (numbers of its
// first type for others):
//   shapes    the shape function says the same for symbols as for the sizes they stand for
//   memory    the kernel writes every element of the outputs, none beside them, and not what the
//             memory held before; the same inputs give the same bits
//   loops     its parallel loops, cut at random and run in seeded orders, give the same bits,
//   and
//             no two iterations write the same element
//   gradient  the rule against numeric differentiation: in float64 where the op allows it, else in
//             float32 with a tolerance of 2 %
//   sharding  every split of the rule, on 2 and 3 shards, against the unsharded result
// A check ends at its first finding.
std::vector<OpCheckResult> CheckCustomOp(const WeftOpDescriptor& op,
                                         const OpCheckOptions& options = {});

}  // namespace weft

#endif  // WEFT_TOOLS_MODELS_OP_CHECK_H_
