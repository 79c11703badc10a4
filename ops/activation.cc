#include "ops/activation.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace weft {
namespace {

struct ActivationDef {
  const char* name;
  ActivationKind kind;
  std::optional<double> alpha;  // the default, if the activation has one
  std::optional<double> beta;
};

// From the description of LSTM in ONNX's operators. Affine, LeakyRelu, ThresholdedRelu and
// ScaledTanh take the defaults of the ops of those names, and one and zero where there are none.
const ActivationDef kActivations[] = {
    {"Relu", ActivationKind::kRelu, std::nullopt, std::nullopt},
    {"Tanh", ActivationKind::kTanh, std::nullopt, std::nullopt},
    {"Sigmoid", ActivationKind::kSigmoid, std::nullopt, std::nullopt},
    {"Affine", ActivationKind::kAffine, 1.0, 0.0},
    {"LeakyRelu", ActivationKind::kLeakyRelu, 0.01, std::nullopt},
    {"ThresholdedRelu", ActivationKind::kThresholdedRelu, 1.0, std::nullopt},
    {"ScaledTanh", ActivationKind::kScaledTanh, 1.0, 1.0},
    {"HardSigmoid", ActivationKind::kHardSigmoid, 0.2, 0.5},
    {"Elu", ActivationKind::kElu, 1.0, std::nullopt},
    {"Softsign", ActivationKind::kSoftsign, std::nullopt, std::nullopt},
    {"Softplus", ActivationKind::kSoftplus, std::nullopt, std::nullopt},
};

bool SameIgnoringCase(const std::string& a, const std::string& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

const ActivationDef* FindActivation(const std::string& name) {
  for (const ActivationDef& def : kActivations) {
    if (SameIgnoringCase(def.name, name)) return &def;
  }
  return nullptr;
}

}  // namespace

double Activation::operator()(double x) const {
  switch (kind) {
    case ActivationKind::kRelu:
      return std::max(x, 0.0);
    case ActivationKind::kTanh:
      return std::tanh(x);
    case ActivationKind::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case ActivationKind::kAffine:
      return alpha * x + beta;
    case ActivationKind::kLeakyRelu:
      return x >= 0 ? x : alpha * x;
    case ActivationKind::kThresholdedRelu:
      return x > alpha ? x : 0;
    case ActivationKind::kScaledTanh:
      return alpha * std::tanh(beta * x);
    case ActivationKind::kHardSigmoid:
      return std::clamp(alpha * x + beta, 0.0, 1.0);
    case ActivationKind::kElu:
      return x >= 0 ? x : alpha * std::expm1(x);
    case ActivationKind::kSoftsign:
      return x / (1 + std::abs(x));
    case ActivationKind::kSoftplus:
      return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
  }
  return x;
}

double Activation::Slope(double x) const {
  const double y = (*this)(x);
  switch (kind) {
    case ActivationKind::kRelu:
      return x > 0 ? 1 : 0;
    case ActivationKind::kTanh:
      return 1 - y * y;
    case ActivationKind::kSigmoid:
      return y * (1 - y);
    case ActivationKind::kAffine:
      return alpha;
    case ActivationKind::kLeakyRelu:
      return x >= 0 ? 1 : alpha;
    case ActivationKind::kThresholdedRelu:
      return x > alpha ? 1 : 0;
    case ActivationKind::kScaledTanh: {
      const double t = std::tanh(beta * x);
      return alpha * beta * (1 - t * t);
    }
    case ActivationKind::kHardSigmoid:
      return y > 0 && y < 1 ? alpha : 0;
    case ActivationKind::kElu:
      return x >= 0 ? 1 : y + alpha;
    case ActivationKind::kSoftsign:
      return 1 / ((1 + std::abs(x)) * (1 + std::abs(x)));
    case ActivationKind::kSoftplus:
      return 1 / (1 + std::exp(-x));
  }
  return 0;
}

absl::StatusOr<std::vector<Activation>> ReadActivations(const Attributes& attributes,
                                                        const std::vector<std::string>& fallback,
                                                        int directions) {
  std::vector<std::string> names = attributes.Strings("activations");
  if (names.empty()) {
    for (int i = 0; i < directions; ++i) {
      names.insert(names.end(), fallback.begin(), fallback.end());
    }
  }
  const size_t expected = fallback.size() * directions;
  if (names.size() != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("attribute 'activations' has ", names.size(), " names, expected ", expected));
  }
  const std::vector<float> alphas = attributes.Floats("activation_alpha");
  const std::vector<float> betas = attributes.Floats("activation_beta");
  size_t next_alpha = 0;
  size_t next_beta = 0;
  std::vector<Activation> activations;
  for (const std::string& name : names) {
    const ActivationDef* def = FindActivation(name);
    if (def == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("attribute 'activations' names '", name, "', which is no activation"));
    }
    Activation& activation = activations.emplace_back();
    activation.kind = def->kind;
    if (def->alpha.has_value()) {
      activation.alpha = next_alpha < alphas.size() ? alphas[next_alpha++] : *def->alpha;
    }
    if (def->beta.has_value()) {
      activation.beta = next_beta < betas.size() ? betas[next_beta++] : *def->beta;
    }
  }
  return activations;
}

}  // namespace weft
