// SPDX-License-Identifier: Apache-2.0
// Gives its options to the precompiled headers of all libraries (CwTargets.cmake).
