#include "tools/sweep/trial_shares.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "tools/console/exit_code.h"

namespace weft {

int WorkersNeeded(const Plan& plan) {
  if (plan.mesh.size() > 1 && plan.workers.empty()) return plan.mesh.size();
  if (plan.workers.empty()) return 0;
  return *std::max_element(plan.workers.begin(), plan.workers.end()) + 1;
}

absl::StatusOr<WorkerShare> CutWorkers(const ShareQuestion& question) {
  const int each = std::max(1, question.needed);
  const int possible = question.workers / each;
  const int wanted = question.side_by_side;
  if (wanted > std::max(1, possible)) {
    const std::string needs =
        each == 1 ? "as many workers"
                  : absl::StrCat(wanted * each, " workers, as the plan has ", each, " for each");
    return UsageError(absl::StrCat(
        "--side-by-side ", wanted, " needs ", needs, ", and there ",
        question.workers == 1 ? "is 1" : absl::StrCat("are ", question.workers), "; ",
        question.of_a_cluster ? "name more in the cluster file, or give a smaller number"
                              : absl::StrCat("give --local ", wanted * each)));
  }
  WorkerShare share;
  share.workers = question.workers;
  if (possible == 0) return share;
  share.count = wanted > 0 ? wanted : std::min(possible, question.trials);
  share.workers = question.needed > 0 ? question.needed : question.workers / share.count;
  return share;
}

}  // namespace weft
