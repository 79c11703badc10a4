#ifndef WEFT_PLATFORM_TESTING_FAULTY_DISK_H_
#define WEFT_PLATFORM_TESTING_FAULTY_DISK_H_

#include <memory>

#include "platform/file_system.h"
#include "platform/folders.h"

namespace weft::testing {

// The machine's file system with faults: as if the process were killed at the k-th change, or the
// disk were full. Changes are counted as the system sees them: a file that is written atomically is
// three (half of the temporary file, all of it, its new name), a folder that is removed one for
// each file and one for itself. Thread-safe.
//
//   FaultyDisk disk;
//   disk.DieAt(4);              // changes 0 to 3 are made, no others
//   Save(disk.files(), disk.folders());
//   // look at what is left through RealFileSystem()
class FaultyDisk {
 public:
  FaultyDisk();
  ~FaultyDisk();

  FileSystem& files();
  Folders& folders();

  // Change number `change` (from 0) and all later ones fail and do nothing; counted from now.
  void DieAt(int change);
  // Every change fails with this error (ENOSPC, EIO, EACCES) until it is called again; 0 = none.
  void FailWith(int error_number);
  // Change number `change` (from 0) alone fails with this error; counted from now.
  void FailOnce(int change, int error_number);
  // Changes that were tried since DieAt, FailOnce, or the beginning.
  int changes() const;

 private:
  class State;
  class Files;
  class Directories;

  std::unique_ptr<State> state_;
  std::unique_ptr<Files> files_;
  std::unique_ptr<Directories> folders_;
};

}  // namespace weft::testing

#endif  // WEFT_PLATFORM_TESTING_FAULTY_DISK_H_
