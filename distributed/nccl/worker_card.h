// WorkerCard: the GPU of a worker: what NCCL is concerned with, and what people call it.
#ifndef WEFT_DISTRIBUTED_NCCL_WORKER_CARD_H_
#define WEFT_DISTRIBUTED_NCCL_WORKER_CARD_H_

#include <string>

#include "distributed/nccl/nccl.h"
#include "platform/file_system.h"
#include "tensor/device.h"

namespace weft {

// NCCL joins cards, so two workers of one card cannot both take part.
struct WorkerCard {
  // Machine and PCI bus, equal for all devices on one card; empty: the device is no card.
  std::string name;
  Nccl* nccl = nullptr;  // borrowed; null: `problem` says why
  std::string problem;
  // Of the card, for people and for profiles: "NVIDIA L4, compute capability 8.9", and of its
  // driver: "580.65.06"; empty: not known.
  std::string text = {};
  std::string driver = {};
};

// Of a CUDA device, with the process's NCCL; empty for any other. `files` tell which machine it is.
WorkerCard CardOf(Device& device, FileSystem& files);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_NCCL_WORKER_CARD_H_
