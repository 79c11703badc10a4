#include "distributed/process/job_workers.h"

namespace weft {

std::vector<Arrival> JobWorkers::Take(absl::Time deadline) {
  std::vector<Arrival> arrivals;
  if (further_ != nullptr) arrivals = further_->Take(absl::InfinitePast());
  // Who is there keeps nobody waiting.
  const absl::Time wait = arrivals.empty() ? deadline : absl::InfinitePast();
  for (const Arrival& arrival : cluster_.Take(wait)) arrivals.push_back(arrival);
  return arrivals;
}

void JobWorkers::TakenIn(const WorkerClient& client) {
  if (further_ != nullptr) further_->TakenIn(client);
}

void JobWorkers::Refuse(WorkerClient& client, const absl::Status& why) {
  if (further_ != nullptr) further_->Refuse(client, why);
}

void JobWorkers::Lose(const std::vector<WorkerClient*>& clients) {
  cluster_.Lose(clients);
  if (further_ != nullptr) further_->Lose(clients);
}

void JobWorkers::Release(const std::vector<WorkerClient*>& clients) {
  cluster_.Release(clients);
  if (further_ != nullptr) further_->Release(clients);
}

}  // namespace weft
