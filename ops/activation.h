// The activations that ONNX's recurrent ops name in their attributes.
#ifndef WEFT_OPS_ACTIVATION_H_
#define WEFT_OPS_ACTIVATION_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/attribute.h"

namespace weft {

// The activations of recurrent operators.
enum class ActivationKind : uint8_t {
  kRelu,
  kTanh,
  kSigmoid,
  kAffine,
  kLeakyRelu,
  kThresholdedRelu,
  kScaledTanh,
  kHardSigmoid,
  kElu,
  kSoftsign,
  kSoftplus,
};

// Value type.
struct Activation {
  ActivationKind kind = ActivationKind::kTanh;
  double alpha = 0;
  double beta = 0;

  double operator()(double x) const;
  // Its derivative; at a kink, that of the side that the kink belongs to in the formula.
  double Slope(double x) const;
};

// The attributes activations, activation_alpha and activation_beta of a recurrent node: `fallback`
// names one set of activations, repeated per direction, where there is no attribute. Alphas and
// betas are taken in order by the activations that have them; ONNX's defaults where there are no
// more. InvalidArgument for unknown names and wrong counts.
absl::StatusOr<std::vector<Activation>> ReadActivations(const Attributes& attributes,
                                                        const std::vector<std::string>& fallback,
                                                        int directions);

}  // namespace weft

#endif  // WEFT_OPS_ACTIVATION_H_
