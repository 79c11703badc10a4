// Adagrad, Adam and Momentum of ai.onnx.preview.training, float32 and float64, in double.
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

constexpr int kMaxStates = 2;

// One element: its value and states, changed by its gradient.
struct Element {
  double x;
  double gradient;
  double states[kMaxStates];
};

struct Coefficients {
  explicit Coefficients(const Attributes& attributes)
      : norm(attributes.Float("norm_coefficient", 0)),
        norm_post(attributes.Float("norm_coefficient_post", 0)),
        alpha(attributes.Float("alpha", 0.9f)),
        beta(attributes.Float("beta", 0.999f)),
        decay(attributes.Float("decay_factor", 0)),
        epsilon(attributes.Float("epsilon", 1e-6f)),
        nesterov(attributes.String("mode", "standard") == "nesterov") {}
  double norm, norm_post, alpha, beta, decay, epsilon;
  bool nesterov;
};

// `rate`: as given; `count`: updates so far.
struct AdagradRule {
  static constexpr int kStates = 1;
  AdagradRule(const Coefficients& c, double rate, double count)
      : c_(c), rate_(rate / (1 + count * c.decay)) {}
  void Apply(Element& e) const {
    const double gradient = c_.norm * e.x + e.gradient;
    e.states[0] += gradient * gradient;
    e.x -= rate_ * gradient / (std::sqrt(e.states[0]) + c_.epsilon);
  }

 private:
  const Coefficients& c_;
  double rate_;
};

struct AdamRule {
  static constexpr int kStates = 2;
  AdamRule(const Coefficients& c, double rate, double count) : c_(c), rate_(rate) {
    if (count > 0) {
      rate_ *= std::sqrt(1 - std::pow(c.beta, count)) / (1 - std::pow(c.alpha, count));
    }
  }
  void Apply(Element& e) const {
    const double gradient = c_.norm * e.x + e.gradient;
    e.states[0] = c_.alpha * e.states[0] + (1 - c_.alpha) * gradient;
    e.states[1] = c_.beta * e.states[1] + (1 - c_.beta) * gradient * gradient;
    e.x -= rate_ * e.states[0] / (std::sqrt(e.states[1]) + c_.epsilon);
    e.x *= 1 - c_.norm_post;
  }

 private:
  const Coefficients& c_;
  double rate_;
};

struct MomentumRule {
  static constexpr int kStates = 1;
  MomentumRule(const Coefficients& c, double rate, double count)
      : c_(c), rate_(rate), beta_(count > 0 ? c.beta : 1) {}
  void Apply(Element& e) const {
    const double gradient = c_.norm * e.x + e.gradient;
    e.states[0] = c_.alpha * e.states[0] + beta_ * gradient;
    e.x -= rate_ * (c_.nesterov ? gradient + c_.alpha * e.states[0] : e.states[0]);
  }

 private:
  const Coefficients& c_;
  double rate_;
  double beta_;
};

// Where the operands of one tensor are.
struct TensorOperands {
  int tensors;  // of the node
  int index;
  int64_t elements;
  bool wants[1 + kMaxStates];  // value, states
};

template <typename T, typename Rule>
void UpdateElements(const TensorOperands& at, const KernelContext& run, const Rule& rule,
                    int64_t begin, int64_t end) {
  const auto input = [&](int group) { return Input<T>(run, 2 + group * at.tensors + at.index); };
  for (int64_t i = begin; i < end; ++i) {
    Element e = {input(0)[i], input(1)[i], {}};
    for (int s = 0; s < Rule::kStates; ++s) e.states[s] = input(2 + s)[i];
    rule.Apply(e);
    if (at.wants[0]) Output<T>(run, at.index)[i] = static_cast<T>(e.x);
    for (int s = 0; s < Rule::kStates; ++s) {
      if (!at.wants[1 + s]) continue;
      Output<T>(run, (1 + s) * at.tensors + at.index)[i] = static_cast<T>(e.states[s]);
    }
  }
}

template <typename Rule>
absl::StatusOr<std::unique_ptr<Kernel>> PrepareUpdate(const PrepareContext& context) {
  const int tensors = (context.num_inputs() - 2) / (Rule::kStates + 2);
  std::vector<TensorOperands> operands;
  for (int i = 0; i < tensors; ++i) {
    TensorOperands at = {tensors, i, context.InputShape(2 + i).num_elements(), {}};
    for (int o = 0; o <= Rule::kStates; ++o) at.wants[o] = context.HasOutput(o * tensors + i);
    operands.push_back(at);
  }
  std::vector<DType> dtypes;
  for (int i = 0; i < tensors; ++i) dtypes.push_back(context.InputDType(2 + i));
  const bool double_rate = context.InputDType(0) == DType::kFloat64;
  return MakeKernel([=, threads = context.threads(),
                     coefficients = Coefficients(context.attributes())](const KernelContext& run) {
    const double rate = double_rate ? *Input<double>(run, 0) : *Input<float>(run, 0);
    const Rule rule(coefficients, rate, static_cast<double>(*Input<int64_t>(run, 1)));
    for (const TensorOperands& at : operands) {
      ParallelFor(threads, at.elements, 4, 64, [&](int64_t begin, int64_t end) {
        if (dtypes[at.index] == DType::kFloat64) {
          UpdateElements<double>(at, run, rule, begin, end);
        } else {
          UpdateElements<float>(at, run, rule, begin, end);
        }
      });
    }
    return absl::OkStatus();
  });
}

constexpr char kDomain[] = "ai.onnx.preview.training";
WEFT_REGISTER_KERNEL(kDomain, "Adagrad", DeviceKind::kCpu, PrepareUpdate<AdagradRule>);
WEFT_REGISTER_KERNEL(kDomain, "Adam", DeviceKind::kCpu, PrepareUpdate<AdamRule>);
WEFT_REGISTER_KERNEL(kDomain, "Momentum", DeviceKind::kCpu, PrepareUpdate<MomentumRule>);

}  // namespace
}  // namespace weft::cpu
