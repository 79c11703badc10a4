#include "distributed/in_process_cluster.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/clock.h"
#include "tensor/cpu_device.h"

namespace weft {

InProcessCluster::InProcessCluster(int workers, InputSourceFactory open_input, std::string version,
                                   FileSystem* files) {
  std::vector<Device*> devices;
  for (int i = 0; i < workers; ++i) {
    DeviceInfo info;
    info.index = i;
    devices_.push_back(NewCpuDevice(info));
    devices.push_back(devices_.back().get());
  }
  AddWorkers(devices, open_input, version, files, {});
}

InProcessCluster::InProcessCluster(const std::vector<Device*>& devices,
                                   InputSourceFactory open_input, std::string version,
                                   const std::vector<WorkerCard>& cards, FileSystem* files) {
  AddWorkers(devices, open_input, version, files, cards);
}

InProcessCluster::~InProcessCluster() { workers_.clear(); }

void InProcessCluster::AddWorkers(const std::vector<Device*>& devices,
                                  const InputSourceFactory& open_input, const std::string& version,
                                  FileSystem* files, const std::vector<WorkerCard>& cards) {
  const int ranks = static_cast<int>(devices.size());
  for (int i = 0; i < ranks; ++i) {
    WorkerEnvironment environment;
    environment.name = absl::StrCat("worker:", i, " (in this process)");
    environment.device = devices[i];
    if (!cards.empty()) environment.card = cards[i];
    environment.clock = &RealClock();
    environment.open_input = open_input;
    environment.version = version;
    environment.files = files;
    environment.open_transport =
        [this, ranks, i](const JobMembership& job) -> absl::StatusOr<std::unique_ptr<Transport>> {
      MutexLock lock(mutex_);
      if (hubs_.empty() || job.job_id != job_id_) {
        hubs_.push_back(std::make_unique<InProcessHub>(ranks));
        job_id_ = job.job_id;
      }
      std::unique_ptr<Transport> own = hubs_.back()->NewTransport(job.rank);
      return hook_ == nullptr ? std::move(own) : hook_(i, job, std::move(own));
    };
    workers_.push_back(NewWorker(std::move(environment)));
  }
}

std::vector<WorkerClient*> InProcessCluster::clients() const {
  std::vector<WorkerClient*> clients;
  for (const auto& worker : workers_) clients.push_back(worker.get());
  return clients;
}

}  // namespace weft
