#include "distributed/settle_step.h"

#include <functional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "distributed/recovery/step_decision.h"
#include "platform/log.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// Asks these clients, each in a thread of its own; the answers in their order.
template <typename Request>
std::vector<absl::StatusOr<typename Request::Reply>> AskEach(
    const std::vector<WorkerClient*>& clients, const std::vector<int>& whom,
    const Request& request) {
  std::vector<absl::StatusOr<typename Request::Reply>> replies(whom.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < whom.size(); ++i) {
    threads.emplace_back(
        [&, i] { replies[i] = clients[static_cast<size_t>(whom[i])]->Ask(request); });
  }
  for (std::thread& thread : threads) thread.join();
  return replies;
}

// One that answers with an error is there, and has a reason of its own.
bool IsLost(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

absl::StatusOr<SettledStep> SettleStep(const std::vector<WorkerClient*>& clients, int64_t runs,
                                       int64_t reported) {
  std::vector<int> asked;
  for (size_t i = 0; i < clients.size(); ++i) asked.push_back(static_cast<int>(i));
  SettledStep settled;
  // Once more where one is lost meanwhile: the others have come to the same step by then.
  while (true) {
    std::vector<StepProgress> progress;
    settled.left.clear();
    const auto replies = AskEach(clients, asked, StepProgressRequest{});
    for (size_t i = 0; i < asked.size(); ++i) {
      if (replies[i].ok()) {
        settled.left.push_back(asked[i]);
        progress.push_back(*replies[i]);
      } else if (!IsLost(replies[i].status())) {
        return replies[i].status();
      }
    }
    if (settled.left.empty()) return absl::UnavailableError("all workers of the job are lost");
    asked = settled.left;
    WEFT_ASSIGN_OR_RETURN(const StepDecision decision, DecideStep(progress, runs));
    settled.steps = decision.steps;
    std::vector<int> finish;
    for (const int i : decision.finish) finish.push_back(settled.left[static_cast<size_t>(i)]);
    if (!finish.empty()) {
      Log(LogLevel::kInfo, finish.size(), " of ", settled.left.size(),
          " workers finish the step that was under way");
    }
    bool again = false;
    for (const auto& reply : AskEach(clients, finish, FinishStepRequest{})) {
      if (!reply.ok() && !IsLost(reply.status())) return reply.status();
      again = again || !reply.ok();
    }
    if (again) continue;
    if (settled.steps <= reported) return settled;
    const StepReportsRequest request{.first = reported};
    auto reports = clients[static_cast<size_t>(settled.left.front())]->Ask(request);
    if (reports.ok()) {
      settled.reports = *std::move(reports);
      return settled;
    }
    if (!IsLost(reports.status())) return reports.status();
  }
}

}  // namespace weft
