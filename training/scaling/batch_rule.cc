#include "training/scaling/batch_rule.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

int64_t PowerOfTwoWithin(int64_t number) {
  int64_t power = 1;
  while (power <= number / 2) power *= 2;
  return power;
}

// By the ratio: 90 is nearer to 64 than to 128, 91 is not.
int64_t NearestPowerOfTwo(double number) {
  const double exponent = std::clamp(std::round(std::log2(number)), 0.0, 40.0);
  return int64_t{1} << static_cast<int>(exponent);
}

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// One epoch at most, and never the whole run.
int64_t WarmupSteps(const BatchQuestion& question, int64_t batch) {
  const int64_t epoch = CeilDiv(question.samples, batch);
  const int64_t steps = question.steps > 0 ? question.steps : question.epochs * epoch;
  const double part = std::ceil(kWarmupPart * static_cast<double>(steps));
  return std::min({static_cast<int64_t>(part), epoch, std::max<int64_t>(0, steps - 1)});
}

}  // namespace

BatchProposal ProposalFor(const BatchQuestion& question, int64_t batch, std::string limit) {
  const auto slowness = [&](int64_t size) {
    return 1 + question.noise_scale / static_cast<double>(size);
  };
  BatchProposal proposal;
  proposal.batch = batch;
  proposal.rate_factor =
      std::pow(slowness(question.base_batch) / slowness(batch), question.rate_exponent);
  if (proposal.rate_factor > 1) proposal.warmup = WarmupSteps(question, batch);
  proposal.limit = std::move(limit);
  return proposal;
}

BatchProposal ProposeBatch(const BatchQuestion& question) {
  int64_t batch = NearestPowerOfTwo(question.noise_scale);
  std::string limit = "the noise scale";
  const auto lower = [&](int64_t bound, std::string what) {
    if (batch <= bound) return;
    batch = PowerOfTwoWithin(bound);
    limit = std::move(what);
  };
  if (question.max_batch > 0) lower(question.max_batch, "the given maximum");
  lower(std::max<int64_t>(question.samples / kMinStepsPerEpoch, 1),
        absl::StrCat("the data set: ", kMinStepsPerEpoch, " steps an epoch"));
  if (batch < question.min_batch) {
    batch = question.min_batch;
    limit = "the micro-batches: a sample each";
  }
  return ProposalFor(question, batch, std::move(limit));
}

absl::StatusOr<BatchProposal> ProposeFittingBatch(
    const BatchQuestion& question, const std::function<absl::Status(int64_t batch)>& fits) {
  BatchProposal proposal = ProposeBatch(question);
  while (proposal.batch / 2 >= question.min_batch) {
    const absl::Status status = fits(proposal.batch);
    if (status.ok()) break;
    if (!absl::IsResourceExhausted(status)) return status;
    proposal = ProposalFor(question, proposal.batch / 2, "the memory of the workers");
  }
  return proposal;
}

double RateExponent(bool is_linear) { return is_linear ? 1 : 0.5; }

}  // namespace weft
