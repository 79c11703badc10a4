// The geometry of matrix products of quantized operands.
#ifndef WEFT_OPS_KERNELS_CPU_QUANTIZED_QUANTIZED_PRODUCT_H_
#define WEFT_OPS_KERNELS_CPU_QUANTIZED_QUANTIZED_PRODUCT_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "ops/defs/rules/rules.h"
#include "ops/kernel.h"

namespace weft::cpu {

// A batch of products [m, k] [k, n]; the i-th is of matrices a_items[i] and b_items[i].
struct ProductGeometry {
  int64_t m = 1;
  int64_t k = 1;
  int64_t n = 1;
  std::vector<int64_t> a_items;
  std::vector<int64_t> b_items;

  // Of two inputs, as MatMul defines it. InvalidArgument when they do not fit.
  static absl::StatusOr<ProductGeometry> Make(const PrepareContext& context, int a_input,
                                              int b_input);
};

// Where a scale or zero point of a row or column of the product is: one for all, one per line, or
// one per line and item of the batch.
class PerLine {
 public:
  PerLine() = default;
  // InvalidArgument when the input has another number of elements. An absent input is one for all.
  static absl::StatusOr<PerLine> Make(const PrepareContext& context, int input, int64_t lines,
                                      int64_t items);
  int64_t Index(int64_t item, int64_t line) const { return item * item_step_ + line * line_step_; }

 private:
  int64_t line_step_ = 0;
  int64_t item_step_ = 0;
};

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_QUANTIZED_QUANTIZED_PRODUCT_H_
