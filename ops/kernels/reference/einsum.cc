// Reference kernel of Einsum: every combination of indices, one by one.
#include <algorithm>

#include "ops/defs/linear/einsum_equation.h"
#include "ops/kernels/reference/reference.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

// The offset of the element at these indices of the labels.
int64_t OffsetOf(const Shape& shape, const std::vector<int>& labels,
                 const std::vector<int64_t>& index) {
  int64_t offset = 0;
  for (int d = 0; d < shape.rank(); ++d) {
    offset = offset * shape.dim(d) + (shape.dim(d) == 1 ? 0 : index[labels[d]]);
  }
  return offset;
}

absl::Status Einsum(ReferenceCall& call) {
  std::vector<int> ranks;
  for (int i = 0; i < call.num_inputs(); ++i) ranks.push_back(call.input(i).shape.rank());
  WEFT_ASSIGN_OR_RETURN(const EinsumEquation equation,
                        EinsumEquation::Parse(call.attributes().String("equation", ""), ranks));
  std::vector<int64_t> sizes(equation.label_count, 1);
  for (int i = 0; i < call.num_inputs(); ++i) {
    for (int d = 0; d < ranks[i]; ++d) {
      int64_t& size = sizes[equation.operands[i][d]];
      if (call.input(i).shape.dim(d) != 1) size = call.input(i).shape.dim(d);
    }
  }
  int64_t combinations = 1;
  for (const int64_t size : sizes) combinations *= size;
  std::vector<int64_t> index(sizes.size());
  for (int64_t c = 0; c < combinations; ++c) {
    int64_t rest = c;
    for (size_t label = 0; label < sizes.size(); ++label) {
      index[label] = rest % sizes[label];
      rest /= sizes[label];
    }
    double product = 1;
    for (int i = 0; i < call.num_inputs(); ++i) {
      product *= call.input(i)[OffsetOf(call.input(i).shape, equation.operands[i], index)];
    }
    call.output(0)[OffsetOf(call.output(0).shape, equation.output, index)] += product;
  }
  return absl::OkStatus();
}

WEFT_REGISTER_REFERENCE_KERNEL("", "Einsum", ReferenceKernel(Einsum));

}  // namespace
}  // namespace weft::cpu
