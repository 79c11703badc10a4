// The rule that makes a batch, a learning rate and a warm-up of a measured noise scale.
#ifndef WEFT_TRAINING_SCALING_BATCH_RULE_H_
#define WEFT_TRAINING_SCALING_BATCH_RULE_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weft {

// Each epoch keeps at least so many steps.
inline constexpr int64_t kMinStepsPerEpoch = 8;
// The warm-up takes this part of a run (Goyal et al., "Accurate, Large Minibatch SGD", 2017, have 5
// of 90 epochs), one epoch at most, and never the whole run.
inline constexpr double kWarmupPart = 0.05;

// What a batch is chosen from.
struct BatchQuestion {
  double noise_scale = 0;    // B_simple, in samples; above 0
  int64_t base_batch = 0;    // that the given learning rate is for
  double rate_exponent = 1;  // RateExponent of the optimizer
  int64_t samples = 0;       // of the data set
  int64_t max_batch = 0;     // 0 = any
  int64_t min_batch = 1;     // micro-batches need a sample each
  int64_t epochs = 0;        // of the run; 0: it has `steps`
  int64_t steps = 0;         // of the run
};

struct BatchProposal {
  int64_t batch = 0;
  // What the learning rate of the base batch is multiplied with.
  double rate_factor = 1;
  // Steps; 0 where the rate does not rise.
  int64_t warmup = 0;
  // What the batch ends at: "the noise scale", "the data set", ...
  std::string limit = {};
};

// At the noise scale a run takes twice its fewest steps and twice its fewest samples (McCandlish et
// al., 2018, section 2.3), so the batch is
//   the power of two nearest to noise_scale (by its ratio),
//   at most the largest power of two in max_batch and in samples / kMinStepsPerEpoch,
//   at least min_batch.
// The rate follows the paper's equation 2.5, rate(B) = rate_max / (1 + noise_scale / B):
//   rate_factor = ((1 + noise_scale / base_batch) / (1 + noise_scale / batch)) ^ rate_exponent,
// which is linear in the batch far below the noise scale, and constant far above it.
BatchProposal ProposeBatch(const BatchQuestion& question);

// The same for a batch that something else limits, as memory does: `limit` says what.
BatchProposal ProposalFor(const BatchQuestion& question, int64_t batch, std::string limit);

// ProposeBatch, halved until `fits` is OK or says anything but ResourceExhausted, which is then the
// error. The smallest batch that half of would be below min_batch is not asked about: the job
// itself says what it needs.
absl::StatusOr<BatchProposal> ProposeFittingBatch(
    const BatchQuestion& question, const std::function<absl::Status(int64_t batch)>& fits);

// 1 for updates that are linear in the gradient (gradient descent with or without momentum); 1/2
// for those that divide it by its size (Adam and the like), whose steps do not shrink with the
// gradient (Malladi et al., "On the SDEs and Scaling Rules for Adaptive Gradient Algorithms",
// 2022).
double RateExponent(bool is_linear);

}  // namespace weft

#endif  // WEFT_TRAINING_SCALING_BATCH_RULE_H_
