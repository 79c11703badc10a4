// The optimizers' rules as ops/defs/optimizer/update.cc states them, element by element in double.
#include <algorithm>
#include <cmath>

#include "ops/defs/optimizer/rate_schedule.h"
#include "ops/defs/optimizer/update_operands.h"
#include "ops/kernels/reference/reference.h"

namespace weft::cpu {
namespace {

double Number(ReferenceCall& call, const char* name, double fallback = 0) {
  return Hyperparameter(call.attributes(), name, fallback);
}

absl::Status SgdUpdate(ReferenceCall& call) {
  const double momentum = Number(call, "momentum");
  const bool is_first = call.has_input(5) && call.input(5)[0] == 1;
  const double dampening = is_first ? 0 : Number(call, "dampening");
  const double weight_decay = Number(call, "weight_decay");
  const bool nesterov = call.attributes().Int("nesterov", 0) != 0;
  const double learning_rate = call.input(2)[0];
  const double scale = call.has_input(4) ? call.input(4)[0] : 1;
  for (int64_t i = 0; i < call.output(0).size(); ++i) {
    const double w = call.input(0)[i];
    const double g = scale * (call.input(1)[i] + weight_decay * w);
    double direction = g;
    if (call.has_input(3)) {
      const double velocity = momentum * call.input(3)[i] + (1 - dampening) * g;
      if (call.has_output(1)) call.output(1)[i] = velocity;
      direction = nesterov ? g + momentum * velocity : velocity;
    }
    call.output(0)[i] = w - learning_rate * direction;
  }
  return absl::OkStatus();
}

absl::Status AdamUpdate(ReferenceCall& call) {
  const double beta1 = Number(call, "beta1", 0.9);
  const double beta2 = Number(call, "beta2", 0.999);
  const double epsilon = Number(call, "epsilon", 1e-8);
  const double weight_decay = Number(call, "weight_decay");
  const bool decoupled = call.attributes().Int("decoupled", 0) != 0;
  const double learning_rate = call.input(2)[0];
  const double step = call.input(3)[0];
  for (int64_t i = 0; i < call.output(0).size(); ++i) {
    double w = call.input(0)[i];
    double g = call.input(1)[i];
    if (!decoupled) g += weight_decay * w;
    const double m = beta1 * call.input(4)[i] + (1 - beta1) * g;
    const double v = beta2 * call.input(5)[i] + (1 - beta2) * g * g;
    double largest = v;
    if (call.has_input(6)) {
      largest = std::max(call.input(6)[i], v);
      call.output(3)[i] = largest;
    }
    if (decoupled) w -= learning_rate * weight_decay * w;
    const double mean = m / (1 - std::pow(beta1, step));
    const double square = largest / (1 - std::pow(beta2, step));
    call.output(0)[i] = w - learning_rate * mean / (std::sqrt(square) + epsilon);
    call.output(1)[i] = m;
    call.output(2)[i] = v;
  }
  return absl::OkStatus();
}

absl::Status AdagradUpdate(ReferenceCall& call) {
  const double weight_decay = Number(call, "weight_decay");
  const double epsilon = Number(call, "epsilon", 1e-10);
  const double step = call.input(3)[0];
  const double rate = call.input(2)[0] / (1 + (step - 1) * Number(call, "rate_decay"));
  for (int64_t i = 0; i < call.output(0).size(); ++i) {
    const double w = call.input(0)[i];
    const double g = call.input(1)[i] + weight_decay * w;
    const double sum = call.input(4)[i] + g * g;
    call.output(0)[i] = w - rate * g / (std::sqrt(sum) + epsilon);
    call.output(1)[i] = sum;
  }
  return absl::OkStatus();
}

absl::Status AdadeltaUpdate(ReferenceCall& call) {
  const double weight_decay = Number(call, "weight_decay");
  const double rho = Number(call, "rho", 0.9);
  const double epsilon = Number(call, "epsilon", 1e-6);
  for (int64_t i = 0; i < call.output(0).size(); ++i) {
    const double w = call.input(0)[i];
    const double g = call.input(1)[i] + weight_decay * w;
    const double square = rho * call.input(3)[i] + (1 - rho) * g * g;
    const double delta = std::sqrt(call.input(4)[i] + epsilon) / std::sqrt(square + epsilon) * g;
    call.output(0)[i] = w - call.input(2)[0] * delta;
    call.output(1)[i] = square;
    call.output(2)[i] = rho * call.input(4)[i] + (1 - rho) * delta * delta;
  }
  return absl::OkStatus();
}

absl::Status RmspropUpdate(ReferenceCall& call) {
  const double weight_decay = Number(call, "weight_decay");
  const double alpha = Number(call, "alpha", 0.99);
  const double epsilon = Number(call, "epsilon", 1e-8);
  const double momentum = Number(call, "momentum");
  for (int64_t i = 0; i < call.output(0).size(); ++i) {
    const double w = call.input(0)[i];
    const double g = call.input(1)[i] + weight_decay * w;
    const double square = alpha * call.input(3)[i] + (1 - alpha) * g * g;
    call.output(1)[i] = square;
    double spread = square;
    if (call.has_input(4)) {
      const double mean = alpha * call.input(4)[i] + (1 - alpha) * g;
      call.output(2)[i] = mean;
      spread -= mean * mean;
    }
    double direction = g / (std::sqrt(spread) + epsilon);
    if (call.has_input(5)) {
      direction += momentum * call.input(5)[i];
      call.output(3)[i] = direction;
    }
    call.output(0)[i] = w - call.input(2)[0] * direction;
  }
  return absl::OkStatus();
}

absl::Status LionUpdate(ReferenceCall& call) {
  const double weight_decay = Number(call, "weight_decay");
  const double beta1 = Number(call, "beta1", 0.9);
  const double beta2 = Number(call, "beta2", 0.99);
  const double rate = call.input(2)[0];
  for (int64_t i = 0; i < call.output(0).size(); ++i) {
    const double g = call.input(1)[i];
    const double m = call.input(3)[i];
    const double mixed = beta1 * m + (1 - beta1) * g;
    const double sign = mixed > 0 ? 1 : mixed < 0 ? -1 : mixed;
    call.output(0)[i] = call.input(0)[i] * (1 - rate * weight_decay) - rate * sign;
    call.output(1)[i] = beta2 * m + (1 - beta2) * g;
  }
  return absl::OkStatus();
}

absl::Status LambDirection(ReferenceCall& call) {
  const double weight_decay = Number(call, "weight_decay");
  const double beta1 = Number(call, "beta1", 0.9);
  const double beta2 = Number(call, "beta2", 0.999);
  const double epsilon = Number(call, "epsilon", 1e-6);
  const double step = call.input(2)[0];
  for (int64_t i = 0; i < call.output(0).size(); ++i) {
    const double g = call.input(1)[i];
    const double m = beta1 * call.input(3)[i] + (1 - beta1) * g;
    const double v = beta2 * call.input(4)[i] + (1 - beta2) * g * g;
    const double mean = m / (1 - std::pow(beta1, step));
    const double root = std::sqrt(v / (1 - std::pow(beta2, step)));
    call.output(0)[i] = mean / (root + epsilon) + weight_decay * call.input(0)[i];
    call.output(1)[i] = m;
    call.output(2)[i] = v;
  }
  return absl::OkStatus();
}

absl::Status TrustRatio(ReferenceCall& call) {
  for (int64_t i = 0; i < call.output(0).size(); ++i) {
    const double w = std::sqrt(call.input(0)[i]);
    const double u = std::sqrt(call.input(1)[i]);
    const double below = u + Number(call, "weight_decay") * w + Number(call, "epsilon");
    call.output(0)[i] = w != 0 && u != 0 ? Number(call, "coefficient", 1) * w / below : 1;
  }
  return absl::OkStatus();
}

absl::Status EmaUpdate(ReferenceCall& call) {
  const double decay = Number(call, "decay");
  for (int64_t i = 0; i < call.output(0).size(); ++i) {
    call.output(0)[i] = decay * call.input(0)[i] + (1 - decay) * call.input(1)[i];
  }
  return absl::OkStatus();
}

absl::Status RateFactorOfStep(ReferenceCall& call) {
  const RateSchedule schedule = RateScheduleOf(call.attributes());
  for (int64_t i = 0; i < call.output(0).size(); ++i) {
    call.output(0)[i] = RateFactor(schedule, static_cast<int64_t>(call.input(0)[i]) - 1);
  }
  return absl::OkStatus();
}

absl::Status Scale(ReferenceCall& call) {
  for (int64_t i = 0; i < call.output(0).size(); ++i) {
    call.output(0)[i] = call.input(0)[i] * call.input(1)[0];
  }
  return absl::OkStatus();
}

absl::Status AddN(ReferenceCall& call) {
  for (int64_t i = 0; i < call.output(0).size(); ++i) {
    for (int k = 0; k < call.num_inputs(); ++k) call.output(0)[i] += call.input(k)[i];
  }
  return absl::OkStatus();
}

WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "SgdUpdate", ReferenceKernel(SgdUpdate));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "AdamUpdate", ReferenceKernel(AdamUpdate));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "AdagradUpdate", ReferenceKernel(AdagradUpdate));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "AdadeltaUpdate", ReferenceKernel(AdadeltaUpdate));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "RmspropUpdate", ReferenceKernel(RmspropUpdate));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "LionUpdate", ReferenceKernel(LionUpdate));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "LambDirection", ReferenceKernel(LambDirection));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "TrustRatio", ReferenceKernel(TrustRatio));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "EmaUpdate", ReferenceKernel(EmaUpdate));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "RateFactor", ReferenceKernel(RateFactorOfStep));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "Scale", ReferenceKernel(Scale));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "AddN", ReferenceKernel(AddN));

}  // namespace
}  // namespace weft::cpu
